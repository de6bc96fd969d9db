"""What this worker process holds: running attempts, outcomes not yet written, output not yet stored."""

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


def no_checkpoint_service(attempt: Attempt, request: Request) -> str:
    """Raise RuntimeError; used until a checkpoint service is set."""
    raise RuntimeError(f"nobody here can answer {type(request).__name__}")


class InFlight:
    """State shared between the threads of a worker; every method is safe from any thread."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self.attempts: dict[str, Attempt] = {}
        self.finished: deque[tuple[Attempt, Outcome]] = deque()
        self.speaking: deque[Output] = deque()
        self.awaited = False  # an outcome waits until its output lines are stored
        self.masker: Masker = NO_SECRETS
        self.resting = False
        self.wake: Callable[[], None] = lambda: None
        self.wake_log_writer: Callable[[], None] = lambda: None
        self.answer: Callable[[Attempt, Request], str] = no_checkpoint_service
        self.stop_asked: Callable[[float], bool] = lambda seconds: False  # waits up to `seconds` for a stop
        self.was_signalled: Callable[[], bool] = lambda: False  # by a SIGTERM that may have reached child processes too
        self._clock = clock

    def finish(self, attempt: Attempt, outcome: Outcome) -> None:
        """Record an attempt's outcome; the next round writes it, once the store has all output of the attempt."""
        if attempt.ended_at:
            return  # it was settled as hung before it ended
        attempt.ended_at = monotonic()
        if type(outcome) is Failed or type(outcome) is Crashed:
            outcome = type(outcome)(self._masked(attempt, outcome.why))
        output = attempt.output
        if output is not None:
            output.end()
            output.when_kept = lambda: self._finished(attempt, outcome)
            self.awaited = True
            self.queue_output(output)
            self.wake_log_writer()
            return
        self._finished(attempt, outcome)

    def _finished(self, attempt: Attempt, outcome: Outcome) -> None:
        self.finished.append((attempt, outcome))
        if self.resting:
            self.wake()

    def _masked(self, attempt: Attempt, why: Failure) -> Failure:
        """Return the failure without secrets, and write its traceback to the task's log."""
        if why.trace:
            attempt.log("error", why.trace.rstrip("\n"))
        return replace(why, message=self.masker.text(why.message), trace=self.masker.text(why.trace))

    def output_of(self, attempt: Attempt) -> Output:
        """Return the attempt's output buffer; created with its first line."""
        if attempt.output is None:
            attempt.output = Output(attempt.task, self.masker, self._clock)
        return attempt.output

    def queue_output(self, output: Output) -> None:
        """Queue the output for the log writer."""
        if not output.queued:
            output.queued = True
            self.speaking.append(output)
            self.wake_log_writer()

    def kept(self, output: Output) -> None:
        """Note that the store has all output of an ended attempt."""
        callback, output.when_kept = output.when_kept, None
        if callback is not None:
            callback()

    def holds(self, lease: LeaseRecord) -> bool:
        """Whether this worker holds the lease."""
        attempt = self.attempts.get(lease.task_id)
        return attempt is not None and attempt.task.token == lease.token

    def running_in(self, phase: PhasePlan) -> int:
        """Return the number of attempts of a phase in this process."""
        return sum(attempt.served.phase is phase for attempt in list(self.attempts.values()))
