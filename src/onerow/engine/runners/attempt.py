"""Attempts in flight: the phase, the task and how to stop it; outcomes not yet written, output not yet stored."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from time import monotonic
from typing import Any, Protocol

from msgspec.structs import replace

from onerow.core import values
from onerow.core.failure import Failure, classify
from onerow.core.outcomes import Cancelled
from onerow.core.plan import PhasePlan, Plan
from onerow.core.rules.attempts import (
    CancelledItself,
    Crashed,
    Failed,
    Interrupted,
    Outcome,
    Skipped,
    Snoozed,
    Stopped,
    StopReason,
    Unstarted,
)
from onerow.core.task import Task
from onerow.engine.handler.call import Call, outcome_of_error
from onerow.engine.handler.requests import Request
from onerow.engine.output.buffer import Output
from onerow.engine.output.echo import Echo
from onerow.engine.output.files import LogFiles
from onerow.engine.output.masking import NO_SECRETS, Masker
from onerow.engine.runners.shortage import shortage
from onerow.ports import LeaseRecord

_REPORT_EVERY = 1.0  # seconds between two writes of progress

# Such a failure is an answer about the task, or the handler's own decision, whatever the state of the process.
_SAYS_ENOUGH = frozenset({"permanent", "corrupt", "limit", "auth"})

_HANDED_BACK, _TIMED_OUT = Stopped("drain"), Stopped("timeout")
_LATE = 1.0  # seconds after a stop


class Runner(Protocol):
    """Run attempts of one kind."""

    on_loop: bool
    """Whether its attempts share one event loop, so that one of them can block the others."""

    def submit(self, attempts: "Sequence[Attempt]") -> None:
        """Start these attempts in order, as the concurrency allows."""

    def stop(self, attempt: "Attempt") -> None:
        """Stop the attempt for the reason in `attempt.stop`; its outcome is reported as usual."""

    def close(self) -> None: ...


class ServedPhase:
    """A phase that this worker serves: its plan, its call, and its runner."""

    __slots__ = ("call", "isolated", "lease", "phase", "pipeline", "plan", "runner", "timeout")

    def __init__(self, plan: Plan, phase: PhasePlan, call: Call, runner: Runner, isolated: Runner) -> None:
        self.plan = plan
        self.phase = phase
        self.pipeline = plan.name
        self.call = call
        self.runner = runner
        self.isolated = isolated
        self.lease = phase.lease.total_seconds()
        self.timeout = None if phase.timeout is None else phase.timeout.total_seconds()


class Attempt:
    """A claimed task until its outcome is written. Times are monotonic seconds."""

    __slots__ = (
        "beat_at",
        "ended_at",
        "excused",
        "handle",
        "in_flight",
        "output",
        "progress_json",
        "reported",
        "runner",
        "served",
        "started_at",
        "stop",
        "stop_at",
        "task",
    )

    def __init__(self, task: Task, served: ServedPhase, in_flight: "InFlight", sent_at: float) -> None:
        self.task = task
        self.served = served
        self.in_flight = in_flight
        # A suspect runs in its own process, so that a crash does not affect other attempts.
        self.runner: Runner = served.isolated if task.rescue_count or task.crash_count else served.runner
        self.beat_at = sent_at  # the lease counts from the request, not from the answer
        self.started_at: float | None = None
        self.ended_at = 0.0
        self.excused = 0.0  # seconds of its run time in which another attempt blocked the event loop
        self.stop: StopReason | None = None
        self.stop_at = 0.0
        self.handle: Any = None
        self.progress_json: str | None = None
        self.output: Output | None = None  # set with the first line of output
        self.reported = False  # as settled or lost

    def has_begun(self, clock: float) -> bool:
        """Whether its handler has started; False while its process is still starting."""
        return self.started_at is not None and self.started_at <= clock

    @property
    def lease_for(self) -> timedelta:
        return self.served.phase.lease

    @property
    def safe_until(self) -> float:
        """Until when no other worker can have taken its lease; some time before the end of the lease."""
        return self.beat_at + self.served.lease * 0.85

    def may_begin(self) -> bool:
        """Whether its handler may begin; not if the lease may have ended, since this process may have been stopped."""
        if self.stop is None and monotonic() > self.safe_until:
            self.stop, self.stop_at = "lost", monotonic()
        return self.stop is None and not self.in_flight.unusable

    def outcome_of(self, error: BaseException, because: str = "") -> Outcome:
        """Return the outcome of an exception that was raised in this process; see `judged`."""
        outcome = outcome_of_error(error, self.stop, self.served.call.errors)
        if outcome == _TIMED_OUT and (late := monotonic() - self.stop_at) > _LATE:
            outcome = Stopped("timeout", f"it did not react to its stop for {late:.0f} s")
        return self.judged(outcome, error, because)

    def judged(self, outcome: Outcome, error: BaseException | None = None, because: str = "") -> Outcome:
        """Return the outcome, or Interrupted if it is a failure whose cause may be another attempt of this process.

        Then the task runs again in its own process, where a failure shows that the task is the cause.
        because: a cause outside the task that the caller knows.
        """
        if type(outcome) is not Failed or not self.in_flight.replaceable:
            return outcome
        because = self.in_flight.examine(error) or because
        error_class = outcome.why.error_class if error is None else classify(error).error_class
        if not because or error_class in _SAYS_ENOUGH:
            return outcome
        if outcome.why.trace:
            self.log("error", outcome.why.trace.rstrip("\n"))
        return Interrupted(f"its worker {because}")

    def finish_unstarted(self) -> None:
        """Record that it was stopped before it began; it is handed back, also if its lease may have been lost."""
        self.in_flight.finish(self, Stopped(self.stop) if self.stop in ("cancel", "timeout") else Unstarted())

    def ask_to_stop(self, reason: StopReason) -> None:
        """Stop the work; the first reason counts, except that a lost lease replaces any other."""
        if self.stop is None:
            self.stop_at = monotonic()
        elif reason != "lost" or self.stop == "lost":
            return
        self.stop = reason
        self.runner.stop(self)

    def extended(self, sent_at: float) -> None:
        """Record a heartbeat that was sent at this time and confirmed by the store; extend the process's deadline too."""
        self.beat_at = sent_at
        if hasattr(self.handle, "extend"):
            self.handle.extend()

    def heard(self, task: Task) -> None:
        """Keep a newer version of the row, after a write or a read of this worker."""
        if task.version > self.task.version:
            self.task = task

    # Link, for the context of a handler in this process.

    @property
    def tasks(self) -> Sequence[Task]:
        return (self.task,)

    def stop_reason(self) -> str | None:
        return self.stop

    def progress(self, text: str) -> None:
        masker = self.in_flight.masker
        if masker.text(text) != text:
            text = values.encode(masker.value(values.decode(text)), "progress")
        self.progress_json = text

    def log(self, level: str, text: str, *, echo: bool = True) -> None:
        output = self.in_flight.output_of(self)
        output.log(level, text, echo=echo)
        self.in_flight.queue_output(output)

    def write(self, level: str, text: str) -> None:
        output = self.in_flight.output_of(self)
        output.write(level, text)
        if len(output):
            self.in_flight.queue_output(output)

    def ask(self, request: Request) -> str:
        """Answer a request in the handler's own thread, shielded from interruptions during store calls."""
        handle = self.handle
        shielded = hasattr(handle, "leave")
        if shielded:
            handle.leave()
        try:
            self._check()
            answer = self.in_flight.answer(self, request)
        finally:
            if shielded:
                handle.enter()
        self._check()
        return answer

    def _check(self) -> None:
        if self.stop is not None:
            raise Cancelled(self.stop)


def no_checkpoint_service(attempt: Attempt, request: Request) -> str:
    """Raise RuntimeError; used until a checkpoint service is set."""
    raise RuntimeError(f"no checkpoint service answers {type(request).__name__}")


class InFlight:
    """What a worker process holds, shared by its threads; every method is safe from any thread."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self.attempts: dict[str, Attempt] = {}
        self.finished: deque[tuple[Attempt, Outcome]] = deque()
        self.speaking: deque[Output] = deque()
        self.awaited = False  # an outcome waits until its output lines are stored
        self.masker: Masker = NO_SECRETS
        self.echo: Echo | None = None  # shows output in the worker's log too
        self.log_files: LogFiles | None = None
        self.resting = False
        self.wake: Callable[[], None] = lambda: None
        self.wake_log_writer: Callable[[], None] = lambda: None
        self.answer: Callable[[Attempt, Request], str] = no_checkpoint_service
        self.stop_asked: Callable[[float], bool] = lambda seconds: False  # waits up to `seconds` for a stop
        self.was_signalled: Callable[[], bool] = lambda: False  # by a SIGTERM that may have reached child processes too
        self.replaceable = False  # another process takes over if this one becomes unusable
        self.unusable = ""  # why this process can run no more attempts
        self.became_unusable: Callable[[], None] = lambda: None  # called once
        self._first_to_give_up = threading.Lock()  # never released
        self._report_at = 0.0
        self._clock = clock

    def examine(self, error: BaseException | None = None) -> str:
        """Return why a failure in this process may have a cause outside its task; '' if nothing hints at one.

        If the cause affects all attempts, the process becomes unusable.
        """
        if self.unusable or not self.replaceable:
            return self.unusable
        lack = shortage(error)
        if lack is None:
            return ""
        why = f"ran out of resources ({lack.why})"
        if lack.lasts:
            self.give_up(why)
        return why

    def give_up(self, why: str) -> None:
        """Start no more attempts, and let the worker hand back what it holds and end; `why` follows 'the worker'."""
        if self._first_to_give_up.acquire(blocking=False):
            self.unusable = self.masker.text(why)
            self.became_unusable()

    def finish(self, attempt: Attempt, outcome: Outcome) -> None:
        """Record an attempt's outcome; the next round writes it, once the store has all output of the attempt."""
        if attempt.ended_at:
            return  # it was settled as hung before it ended
        attempt.ended_at = monotonic()
        if self.unusable and outcome == _HANDED_BACK and attempt.runner is not attempt.served.isolated:
            outcome = Interrupted(f"its worker {self.unusable}")  # it may be the cause, so it runs alone next
        if type(outcome) is Failed or type(outcome) is Crashed:
            outcome = type(outcome)(self._masked(attempt, outcome.why))
        elif type(outcome) is CancelledItself or type(outcome) is Skipped:
            outcome = type(outcome)(self.masker.text(outcome.reason))
        elif type(outcome) is Snoozed and outcome.reason:
            outcome = replace(outcome, reason=self.masker.text(outcome.reason))
        elif type(outcome) is Interrupted:
            outcome = Interrupted(self.masker.text(outcome.why))
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
            attempt.output = Output(attempt.task, self.masker, self._clock, self.echo)
        return attempt.output

    def log_file_of(self, attempt: Attempt) -> str | None:
        """Return the path of the attempt's log file, which is created; None if the queue writes no files."""
        if self.log_files is None:
            return None
        output = self.output_of(attempt)
        if output.file is None:
            output.began = self._clock()
            try:
                output.file = self.log_files.create(attempt.task.task_id, output.began)
            except OSError:
                return None  # the LogWriter reports it with the first line; the store has the lines all the same
        return output.file

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

    def holds(self, lease: LeaseRecord | Task) -> bool:
        """Whether this worker holds the lease."""
        attempt = self.attempts.get(lease.task_id)
        return attempt is not None and attempt.task.token == lease.token

    def due_reports(self) -> list[Attempt]:
        """Return attempts with progress to write, at most once a second."""
        if monotonic() < self._report_at:
            return []
        due = [attempt for attempt in list(self.attempts.values()) if attempt.progress_json is not None]
        if due:
            self._report_at = monotonic() + _REPORT_EVERY
        finished = {attempt.task.task_id for attempt, _ in list(self.finished)}
        return [attempt for attempt in due if attempt.task.task_id not in finished]
