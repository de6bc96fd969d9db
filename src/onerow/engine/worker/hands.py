"""What this worker process holds: attempts that run, outcomes not yet written, output not yet kept."""

from collections import deque
from collections.abc import Callable
from datetime import datetime
from time import monotonic

from onerow.core.plan import PhasePlan
from onerow.engine.asks import Request
from onerow.engine.settling import Outcome
from onerow.engine.worker.attempt import Attempt
from onerow.ports import LogLine

_LONGEST_LINE = 16_000


def nobody_answers(attempt: Attempt, request: Request) -> str:
    """What an attempt hears where no clerk was set."""
    raise RuntimeError(f"nobody here can answer {type(request).__name__}")


class Hands:
    """Shared between the threads of a worker; every method is safe from any of them."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self.attempts: dict[str, Attempt] = {}
        self.finished: deque[tuple[Attempt, Outcome]] = deque()
        self.lines: deque[LogLine] = deque()
        self.resting = False
        self.wake: Callable[[], None] = lambda: None
        self.wake_scribe: Callable[[], None] = lambda: None
        self.answer: Callable[[Attempt, Request], str] = nobody_answers
        self._clock = clock

    def finish(self, attempt: Attempt, outcome: Outcome) -> None:
        """An attempt has an outcome; the next turn writes it."""
        if attempt.partial:
            for level, rest in attempt.partial.items():
                self.log(attempt, level, rest)
        attempt.ended_at = monotonic()
        self.finished.append((attempt, outcome))
        if self.resting:
            self.wake()

    def log(self, attempt: Attempt, level: str, text: str) -> None:
        """Keep output lines of an attempt."""
        task = attempt.task
        now = self._clock()
        for line in text.splitlines() or [""]:
            clean = line.replace("\x00", "�").encode("utf-8", "replace").decode()
            if len(clean) > _LONGEST_LINE:
                clean = clean[: _LONGEST_LINE - 1] + "…"
            self.lines.append(LogLine(task.task_id, now, task.phase, task.attempt, level, clean))
        self.wake_scribe()

    def running_in(self, phase: PhasePlan) -> int:
        """How many attempts of a phase are here."""
        return sum(attempt.lane.phase is phase for attempt in list(self.attempts.values()))
