"""Steps of one job: what is done is kept in the job's work folder, is reported to the worker, and is not done again.

A step is done if its file is there, is of the same inputs, and the files that it names exist. The folder belongs to one
generation of the job, so a replay begins anew, and a retry continues.
"""

import os
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import msgspec

_LARGE = ("segments", "task", "text")  # kept in the folder, not reported


class Steps:
    """The steps of one run of main.py; safe from several threads."""

    def __init__(self, folder: Path, reported: Collection[str] = ()) -> None:
        self.folder = folder
        self._reported = set(reported)
        self._lock = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)

    def run(self, name: str, make: Callable[[], dict[str, Any]], **inputs: Any) -> dict[str, Any]:
        """Return the value of a step, inputs included; call `make` if it is not done for them. `files` in the value lists
        files that it made."""
        value = self.done(name)
        if value is None or any(value.get(key) != each for key, each in inputs.items()):
            value = make() | inputs
            write_file(self.folder / f"{name}.json", msgspec.json.encode(value))
        else:
            self.say(f"{name}: done before")
        self._report(name, value)
        return value

    def done(self, name: str) -> dict[str, Any] | None:
        """Return the value of a step that is done, or None."""
        try:
            value = msgspec.json.decode((self.folder / f"{name}.json").read_bytes(), type=dict[str, Any])
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        return value if all(Path(file).exists() for file in value.get("files", ())) else None

    def say(self, text: str) -> None:
        """Print a line. Text from outside can't look like a step: every line but those of _report is indented if it does."""
        line = " ".join(text.split())
        with self._lock:
            print(f" {line}" if line.startswith("::") else line, flush=True)

    def _report(self, name: str, value: dict[str, Any]) -> None:
        with self._lock:
            if name not in self._reported:
                self._reported.add(name)
                shown = {key: each for key, each in value.items() if key not in _LARGE}
                print(f"::step {name} ok {msgspec.json.encode(shown).decode()}", flush=True)


def draft_of(path: Path) -> Path:
    """Return the name under which a file is written. Each attempt of a job uses the same, so a kill leaves at most one."""
    return path.with_name(f".{path.name}.part")


def write_file(path: Path, body: bytes) -> None:
    """Write a file at once: a reader, and a run after a kill, sees the whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = draft_of(path)
    try:
        draft.write_bytes(body)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
