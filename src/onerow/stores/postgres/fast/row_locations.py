"""Where claimed rows lie, so that what ends soon is written without a search.

A place is a row's ctid, which holds until the next write to that row, whoever makes it. It is a hint: the write still
asks for the task and its version, and what it doesn't find there it looks for by id.
"""

from collections.abc import Iterable, Sequence

from onerow.core.task import Task

_MOST = 20_000
"""Places that are kept: more than a worker has in its hands, unless it loses what it claims."""


class RowLocations:
    """The places of what this store claimed and has not written since."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[int, bytes]] = {}

    def note(self, tasks: Iterable[Task], places: Iterable[bytes]) -> None:
        """These tasks were claimed and lie there."""
        if len(self._places) > _MOST:
            self._places.clear()
        self._places.update((task.task_id, (task.version, place)) for task, place in zip(tasks, places, strict=True))

    def take(self, tasks: Sequence[Task]) -> list[bytes | None]:
        """The place of each as it was claimed; None: not known, or somebody has written to it since. Forgets them."""
        found = []
        for task in tasks:
            version, place = self._places.pop(task.task_id, _NOWHERE)
            found.append(place if version == task.version else None)
        return found


_NOWHERE: tuple[int, None] = (0, None)
