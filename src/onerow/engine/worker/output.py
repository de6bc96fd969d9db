"""What one attempt says, until it is in the store: whole lines, masked, in order, and never more than a bound."""

import threading
from collections import deque
from collections.abc import Callable
from datetime import datetime

from onerow.core.task import Task
from onerow.engine.lines import LONGEST_LINE, Lines, storable
from onerow.engine.masking import Masker
from onerow.ports import LogLine

# More than a store keeps of a whole task, so that what goes here would have gone there.
_MOST_LINES = 12_000
_MOST_SIZE = 2_000_000
_WAITS_FOR = 5.0  # seconds without any progress of the scribe's after which nobody waits for it


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
        self._taken = threading.Event()  # since it was last cleared, the scribe has taken lines
        self._waits = True
        self.queued = False  # the scribe knows that we have lines
        self.began: datetime | None = None  # when the first line came
        self.file: str | None = None  # where the scribe writes them as well
        self.when_kept: Callable[[], None] | None = None

    def __len__(self) -> int:
        return len(self._lines)

    def await_room(self) -> None:
        """Wait while the scribe is behind, so that nothing is left out; for whoever can be kept waiting."""
        while self._waits and self._is_crowded():
            self._taken.clear()
            if self._is_crowded() and not self._taken.wait(_WAITS_FOR):
                self._waits = False  # the store is away; until it is back, the oldest lines go

    def _is_crowded(self) -> bool:
        return len(self._lines) > _MOST_LINES // 2 or self._size > _MOST_SIZE // 2

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

    def keep(self, level: str, lines: list[str]) -> None:
        """Lines that are whole and masked already."""
        if not lines:
            return
        now = self._clock()
        kept = [LogLine(self._task_id, now, self._phase, self._attempt, level, line) for line in lines[-_MOST_LINES:]]
        with self._lock:
            self.began = self.began or now
            self._left_out += len(lines) - len(kept)
            self._lines.extend(kept)
            self._size += sum(map(len, lines[-_MOST_LINES:]))
            while len(self._lines) > _MOST_LINES or self._size > _MOST_SIZE:
                self._size -= len(self._lines.popleft().text)
                self._left_out += 1

    def take(self, limit: int) -> list[LogLine]:
        """The oldest lines; for the scribe."""
        with self._lock:
            first: list[LogLine] = []
            if self._left_out and self._lines:
                note = f"… {self._left_out:,} lines are left out here: they came faster than they could be kept"
                next_one = self._lines[0]
                first = [LogLine(self._task_id, next_one.at, self._phase, self._attempt, "warning", note)]
                self._left_out = 0
            lines = [self._lines.popleft() for _ in range(min(limit, len(self._lines)))]
            self._size -= sum([len(line.text) for line in lines])
        self._waits = True
        self._taken.set()
        return first + lines
