"""Physical locations (ctid) of claimed rows, so that the next write needs no index lookup.

A ctid is valid until the next write to the row, by any client. It is only a hint: the write still compares id and
version, and a row that is not found at its ctid is written by id.
"""

from collections.abc import Iterable, Sequence

from onerow.core.task import Task

_MAX_LOCATIONS = 20_000
"""Bound for tasks that were claimed and never written; a worker has fewer in flight."""


class RowLocations:
    """The locations of rows that this store claimed and has not written since."""

    def __init__(self) -> None:
        self._locations: dict[str, tuple[int, bytes]] = {}

    def remember(self, tasks: Iterable[Task], locations: Iterable[bytes]) -> None:
        """Record the locations of claimed tasks."""
        if len(self._locations) > _MAX_LOCATIONS:
            self._locations.clear()
        self._locations.update(
            (task.task_id, (task.version, location)) for task, location in zip(tasks, locations, strict=True)
        )

    def take(self, tasks: Sequence[Task]) -> list[bytes | None]:
        """Remove and return the location of each task; None: unknown, or the task has another version."""
        found = []
        for task in tasks:
            version, location = self._locations.pop(task.task_id, _UNKNOWN)
            found.append(location if version == task.version else None)
        return found


_UNKNOWN: tuple[int, None] = (0, None)
