"""Follows the records of the workers while they run, for the progress of a soak."""

from pathlib import Path

_DONE = b'"outcome":"done"'


class Tail:
    """Counts the bodies that have returned, by reading only what was appended since."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._places: dict[Path, int] = {}
        self.done = 0

    def read(self) -> None:
        """Read what was appended."""
        for path in self._folder.glob("bodies-*.jsonl"):
            place = self._places.get(path, 0)
            if path.stat().st_size == place:
                continue
            with path.open("rb") as file:
                file.seek(place)
                text = file.read()
            whole = text.rfind(b"\n") + 1
            self._places[path] = place + whole
            self.done += text.count(_DONE, 0, whole)
