"""What one attempt says, until it is in the store: whole lines, masked, in order, and never more than a bound."""

import threading
from collections import deque
from collections.abc import Callable
from datetime import datetime
from time import monotonic

from msgspec.structs import replace

from onerow.core.task import Task
from onerow.engine.output.lines import LONGEST_LINE, Lines, storable
from onerow.engine.output.masking import Masker
from onerow.ports import LogLine

# More than a store keeps of a whole task, so that what goes here would have gone there.
_MOST_LINES = 12_000
_MOST_SIZE = 2_000_000
# One task may say so much at once, and so many lines a second for long; then its oldest lines go before they are
# written, so that the store is there for others.
_AT_ONCE = 12_000
_A_SECOND = 2_000


class Output:
    """Filled by whoever runs the attempt, emptied by the scribe."""

    def __init__(self, task: Task, masker: Masker, clock: Callable[[], datetime]) -> None:
        self._task_id, self._phase, self._attempt = task.task_id, task.phase, task.attempt
        self._masker = masker
        self._clock = clock
        self._streams: dict[str, Lines] = {}
        self._lock = threading.Lock()
        self._lines: deque[LogLine] = deque()
        self._size = 0
        self._left_out = 0
        self._said = self._lost = 0  # lines of the whole attempt
        self._allowed = float(_AT_ONCE)
        self._allowed_at = monotonic()
        self._ended = False
        self.queued = False  # the scribe knows that we have lines
        self.began: datetime | None = None  # when the first line came
        self.file: str | None = None  # where the scribe writes them as well
        self.when_kept: Callable[[], None] | None = None

    def __len__(self) -> int:
        return len(self._lines)

    def stream(self, level: str) -> Lines:
        """The stream of a level; what is fed to it must be given to `keep`."""
        return self._streams.setdefault(level, Lines(self._masker))

    def write(self, level: str, text: str) -> None:
        """Output in pieces, as it comes."""
        self.keep(level, self.stream(level).feed(text))

    def log(self, level: str, text: str) -> None:
        """A message, of one line or more."""
        lines = self._masker.text(storable(text)).split("\n")
        self.keep(
            level, [line[at : at + LONGEST_LINE] for line in lines for at in range(0, len(line) or 1, LONGEST_LINE)]
        )

    def end(self) -> None:
        """Nothing more comes: lines without an end are lines as well."""
        for level, stream in self._streams.items():
            self.keep(level, stream.end())
        if self._lost:
            self.keep(
                "warning",
                [f"… of {self._said:,} lines {self._lost:,} were left out: they came faster than lines are kept"],
            )
        self._ended = True

    def keep(self, level: str, lines: list[str]) -> None:
        """Lines that are whole and masked already."""
        if not lines:
            return
        now = self._clock()
        last = lines[-_MOST_LINES:]
        whose, phase, attempt = self._task_id, self._phase, self._attempt
        kept = [LogLine(whose, now, phase, attempt, level, line) for line in last]
        with self._lock:
            self.began = self.began or now
            self._said += len(lines)
            self._leave_out(len(lines) - len(kept))
            self._lines.extend(kept)
            self._size += sum(map(len, last))
            while len(self._lines) > _MOST_LINES or self._size > _MOST_SIZE:
                self._size -= len(self._lines.popleft().text)
                self._leave_out(1)

    def _leave_out(self, count: int) -> None:
        self._left_out += count
        self._lost += count

    def may_take(self) -> int:
        """How many lines the scribe may take now."""
        if self._ended:
            return _MOST_LINES
        now = monotonic()
        self._allowed = min(_AT_ONCE, self._allowed + (now - self._allowed_at) * _A_SECOND)
        self._allowed_at = now
        return int(self._allowed)

    def take(self, limit: int) -> list[LogLine]:
        """The oldest lines; for the scribe."""
        with self._lock:
            oldest = self._lines.popleft
            lines = [oldest() for _ in range(min(limit, self.may_take(), len(self._lines)))]
            self._allowed -= len(lines)
            self._size -= sum([len(line.text) for line in lines])
            if lines and self._left_out:
                note = f"… {self._left_out:,} lines are left out here"
                lines.insert(0, replace(lines[0], level="warning", text=note))
                self._left_out = 0
        return lines
