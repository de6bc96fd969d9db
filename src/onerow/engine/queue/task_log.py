"""Reading and following the log of a task, with filters, from any host."""

import re
import time
from collections import deque
from collections.abc import Iterator

import msgspec

from onerow.core.errors import BadInput
from onerow.core.suggest import did_you_mean
from onerow.engine.queue.scope import Scope
from onerow.ports import LogLine

_PAGE = 1_000
_LOOK_EVERY = 0.2
# stdout ranks as info, and stderr as a warning.
_RANK = {"debug": 10, "out": 20, "info": 20, "err": 30, "warning": 30, "error": 40, "critical": 50}
LEVELS = tuple(_RANK)


class LogGap(msgspec.Struct, frozen=True):
    """Number of lines that were dropped at this position, because the log is bounded."""

    lines: int  # how many


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Filter of log lines; all conditions that are set must match."""

    attempt: int | None = None
    phase: str | None = None
    level: str | None = None  # minimum level; 'out' and 'err' match only themselves
    grep: re.Pattern[str] | None = None

    def __post_init__(self) -> None:
        if self.level is not None and self.level not in _RANK:
            raise BadInput(f"no level {self.level!r}", fix=did_you_mean(self.level, LEVELS), field="level")

    def includes(self, line: LogLine) -> bool:
        if self.attempt is not None and line.attempt != self.attempt:
            return False
        if self.phase is not None and line.phase != self.phase:
            return False
        if self.level in ("out", "err") and line.level != self.level:
            return False
        if self.level is not None and _RANK.get(line.level, 20) < _RANK[self.level]:
            return False
        return self.grep is None or self.grep.search(line.text) is not None


EVERYTHING = Wanted()


def pattern(text: str) -> re.Pattern[str]:
    """Compile a regular expression from user input; raise BadInput if it is invalid."""
    try:
        return re.compile(text)
    except re.error as error:
        raise BadInput(f"{text!r} is no regular expression: {error}", field="grep") from None


def read(
    queue: Scope, task_id: str, wanted: Wanted = EVERYTHING, *, tail: int | None = None
) -> Iterator[LogLine | LogGap]:
    """Iterate over the stored lines that match, oldest first, or over the last `tail` of them."""
    reader = _Reader(queue, task_id, wanted)
    return iter(reader.last(tail)) if tail is not None else reader.rest()


def follow(
    queue: Scope, task_id: str, wanted: Wanted = EVERYTHING, *, tail: int | None = None
) -> Iterator[LogLine | LogGap]:
    """Like `read`, then iterate over new lines, across attempts and workers, until the task has ended."""
    reader = _Reader(queue, task_id, wanted)
    yield from reader.last(tail) if tail is not None else reader.rest()
    while True:
        # Checked before reading lines: once a task has ended, its whole log is in the store.
        ended = queue.get(task_id).ended
        yield from reader.rest()
        if ended:
            return
        time.sleep(_LOOK_EVERY)


class _Reader:
    """A cursor in the log of a task."""

    def __init__(self, queue: Scope, task_id: str, wanted: Wanted) -> None:
        self._queue = queue
        self._task_id = task_id
        self._wanted = wanted
        self._after = 0

    def rest(self) -> Iterator[LogLine | LogGap]:
        """Iterate over the lines from the cursor to the end."""
        while True:
            page = self._queue.logs(self._task_id, after=self._after, limit=_PAGE)
            if not page.lines:
                return
            missing = min(page.lines[0].seq - self._after - 1, page.dropped)
            if missing > 0:
                yield LogGap(missing)
            self._after = page.next
            yield from filter(self._wanted.includes, page.lines)
            if len(page.lines) < _PAGE:
                return

    def last(self, count: int) -> list[LogLine | LogGap]:
        """Return the last matching lines and move the cursor to the end."""
        if self._wanted != EVERYTHING:
            lines = deque((line for line in self.rest() if isinstance(line, LogLine)), maxlen=count)
            return list(lines)
        page = self._queue.logs(self._task_id, tail=count)
        self._after = page.next
        return list(page.lines)
