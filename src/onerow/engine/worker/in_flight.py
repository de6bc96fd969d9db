"""What this worker process holds: attempts that run, outcomes not yet written, output not yet kept."""

from collections import deque
from collections.abc import Callable
from datetime import datetime
from time import monotonic

from msgspec.structs import replace

from onerow.core.failure import Failure
from onerow.core.plan import PhasePlan
from onerow.engine.handler.outcome import Crashed, Failed, Outcome
from onerow.engine.handler.requests import Request
from onerow.engine.output.buffer import Output
from onerow.engine.output.masking import NO_SECRETS, Masker
from onerow.engine.runners.attempt import Attempt
from onerow.ports import LeaseRecord


def nobody_answers(attempt: Attempt, request: Request) -> str:
    """What an attempt hears where no clerk was set."""
    raise RuntimeError(f"nobody here can answer {type(request).__name__}")


class InFlight:
    """Shared between the threads of a worker; every method is safe from any of them."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self.attempts: dict[str, Attempt] = {}
        self.finished: deque[tuple[Attempt, Outcome]] = deque()
        self.speaking: deque[Output] = deque()
        self.awaited = False  # an outcome waits for lines to be kept
        self.masker: Masker = NO_SECRETS
        self.resting = False
        self.wake: Callable[[], None] = lambda: None
        self.wake_log_writer: Callable[[], None] = lambda: None
        self.answer: Callable[[Attempt, Request], str] = nobody_answers
        self.stop_asked: Callable[[float], bool] = lambda seconds: False  # waits up to some seconds for it
        self.was_signalled: Callable[[], bool] = lambda: False  # by a SIGTERM that perhaps came to our children, too
        self._clock = clock

    def finish(self, attempt: Attempt, outcome: Outcome) -> None:
        """An attempt has an outcome; the next turn writes it, once the store has all that the attempt said."""
        if attempt.ended_at:
            return  # it was settled as hung, and ends only now
        attempt.ended_at = monotonic()
        if type(outcome) is Failed or type(outcome) is Crashed:
            outcome = type(outcome)(self._told(attempt, outcome.why))
        output = attempt.output
        if output is not None:
            output.end()
            output.when_kept = lambda: self._finished(attempt, outcome)
            self.awaited = True
            self.let_speak(output)
            self.wake_log_writer()
            return
        self._finished(attempt, outcome)

    def _finished(self, attempt: Attempt, outcome: Outcome) -> None:
        self.finished.append((attempt, outcome))
        if self.resting:
            self.wake()

    def _told(self, attempt: Attempt, why: Failure) -> Failure:
        """Why it failed, without secrets; where exactly stands in the task's log."""
        if why.trace:
            attempt.log("error", why.trace.rstrip("\n"))
        return replace(why, message=self.masker.text(why.message), trace=self.masker.text(why.trace))

    def output_of(self, attempt: Attempt) -> Output:
        """Where an attempt's output goes; made when it first says something."""
        if attempt.output is None:
            attempt.output = Output(attempt.task, self.masker, self._clock)
        return attempt.output

    def let_speak(self, output: Output) -> None:
        """The scribe will come for its lines."""
        if not output.queued:
            output.queued = True
            self.speaking.append(output)
            self.wake_log_writer()

    def kept(self, output: Output) -> None:
        """The store has all that an ended attempt said."""
        told, output.when_kept = output.when_kept, None
        if told is not None:
            told()

    def holds(self, lease: LeaseRecord) -> bool:
        """Whether this worker holds the lease."""
        attempt = self.attempts.get(lease.task_id)
        return attempt is not None and attempt.task.token == lease.token

    def running_in(self, phase: PhasePlan) -> int:
        """How many attempts of a phase are here."""
        return sum(attempt.served.phase is phase for attempt in list(self.attempts.values()))
