"""Bounded buffer of one attempt's output: complete, masked lines in order, until they are in the store."""

import threading
from collections import deque
from collections.abc import Callable
from datetime import datetime
from time import monotonic

from msgspec.structs import replace

from onerow.core.task import Task
from onerow.engine.output.echo import Echo
from onerow.engine.output.lines import LONGEST_LINE, Lines, storable
from onerow.engine.output.masking import Masker
from onerow.ports import LogLine

# More than a store keeps per task, so that a line dropped here would have been dropped by the store as well.
_MOST_LINES = 12_000
_MOST_SIZE = 2_000_000
# Burst and sustained rate of lines per attempt. Beyond that its oldest lines are dropped before they are written, so
# that one attempt cannot overload the store.
_BURST = 12_000
_PER_SECOND = 2_000


class Output:
    """Output of one attempt: filled by its runner, emptied by the LogWriter."""

    def __init__(self, task: Task, masker: Masker, clock: Callable[[], datetime], echo: Echo | None = None) -> None:
        self._task = task
        self._echo = echo
        self._task_id, self._phase, self._attempt = task.task_id, task.phase, task.attempt
        self._masker = masker
        self._clock = clock
        self._streams: dict[str, Lines] = {}
        self._lock = threading.Lock()
        self._lines: deque[LogLine] = deque()
        self._size = 0
        self._unreported = 0
        self._written = self._dropped = 0  # line counts of the whole attempt
        self._allowed = float(_BURST)
        self._allowed_at = monotonic()
        self._ended = False
        self.queued = False  # whether the LogWriter has this output in its queue
        self.began: datetime | None = None  # when the first line was written
        self.file: str | None = None  # the log file of the attempt, if any
        self.when_kept: Callable[[], None] | None = None

    def __len__(self) -> int:
        return len(self._lines)

    def stream(self, level: str) -> Lines:
        """Return the stream of a level; pass the lines that it returns to `keep`."""
        return self._streams.setdefault(level, Lines(self._masker))

    def write(self, level: str, text: str) -> None:
        """Write a piece of output, cut anywhere."""
        self.keep(level, self.stream(level).feed(text))

    def log(self, level: str, text: str, *, echo: bool = True) -> None:
        """Write a message of one or more lines."""
        lines = self._masker.text(storable(text)).split("\n")
        parts = [line[at : at + LONGEST_LINE] for line in lines for at in range(0, len(line) or 1, LONGEST_LINE)]
        self.keep(level, parts, echo=echo)

    def end(self) -> None:
        """End the output; incomplete lines are kept as lines."""
        for level, stream in self._streams.items():
            self.keep(level, stream.end())
        if self._dropped:
            self.keep(
                "warning",
                [f"… of {self._written:,} lines {self._dropped:,} were left out: they came faster than lines are kept"],
            )
        self._ended = True

    def keep(self, level: str, lines: list[str], *, echo: bool = True) -> None:
        """Append complete lines that are already masked. echo: also show them, if output is shown."""
        if not lines:
            return
        if echo and self._echo is not None:
            self._echo.put(self._task, level, lines)
        now = self._clock()
        last = lines[-_MOST_LINES:]
        task_id, phase, attempt = self._task_id, self._phase, self._attempt
        kept = [LogLine(task_id, now, phase, attempt, level, line) for line in last]
        with self._lock:
            self.began = self.began or now
            self._written += len(lines)
            self._count_dropped(len(lines) - len(kept))
            self._lines.extend(kept)
            self._size += sum(map(len, last))
            while len(self._lines) > _MOST_LINES or self._size > _MOST_SIZE:
                self._size -= len(self._lines.popleft().text)
                self._count_dropped(1)

    def _count_dropped(self, count: int) -> None:
        self._unreported += count
        self._dropped += count

    def may_take(self) -> int:
        """Number of lines that the LogWriter may take now."""
        if self._ended:
            return _MOST_LINES
        now = monotonic()
        self._allowed = min(_BURST, self._allowed + (now - self._allowed_at) * _PER_SECOND)
        self._allowed_at = now
        return int(self._allowed)

    def take(self, limit: int) -> list[LogLine]:
        """Remove and return the oldest lines; called by the LogWriter."""
        with self._lock:
            oldest = self._lines.popleft
            lines = [oldest() for _ in range(min(limit, self.may_take(), len(self._lines)))]
            self._allowed -= len(lines)
            self._size -= sum([len(line.text) for line in lines])
            if lines and self._unreported:
                note = f"… {self._unreported:,} lines are left out here"
                lines.insert(0, replace(lines[0], level="warning", text=note))
                self._unreported = 0
        return lines
