"""The log of a task as far as it was read: new lines are appended, old ones are dropped."""

from collections.abc import Callable
from typing import NamedTuple

from onerow.engine.queue.queue import Queue
from onerow.engine.queue.task_log import EVERYTHING, Wanted
from onerow.ports import LogLine

_MOST = 5_000
_FIRST = 1_000
LEVELS = ("", "info", "warning", "error")


class NewLines(NamedTuple):
    """Lines that were read, and the position after them."""

    lines: list[LogLine]
    next: int
    dropped: int


class LogTail:
    """The last lines of one task's log."""

    def __init__(self, task_id: str) -> None:
        self.task_id = task_id
        self.lines: list[LogLine] = []
        self.level = ""
        self.dropped = 0
        self._after: int | None = None

    def reading(self, queue: Queue) -> Callable[[], NewLines]:
        """Return the function that reads what is new; it runs in a thread."""
        task_id, after = self.task_id, self._after

        def read() -> NewLines:
            if after is None:
                page = queue.logs(task_id, tail=_FIRST)
            else:
                page = queue.logs(task_id, after=after, limit=_FIRST)
            return NewLines(page.lines, page.next, page.dropped)

        return read

    def take(self, new: NewLines) -> bool:
        """Append what was read; return whether there was anything."""
        if self._after is not None and new.next <= self._after:
            return False
        seen = self.lines[-1].seq if self.lines else 0
        self.lines += [line for line in new.lines if line.seq > seen]
        self.dropped = new.dropped + max(0, len(self.lines) - _MOST)
        del self.lines[:-_MOST]
        self._after = new.next
        return True

    def shown(self) -> list[LogLine]:
        """The lines of the chosen level."""
        wanted = Wanted(level=self.level) if self.level else EVERYTHING
        return [line for line in self.lines if wanted.includes(line)]

    def next_level(self) -> str:
        self.level = LEVELS[(LEVELS.index(self.level) + 1) % len(LEVELS)]
        return self.level or "all"
