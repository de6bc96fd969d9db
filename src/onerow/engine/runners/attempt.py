"""One attempt in flight: the task, its call, and how to stop it."""

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

from onerow.core import values
from onerow.core.outcomes import Cancelled
from onerow.core.plan import PhasePlan, Plan
from onerow.core.resources import Resources
from onerow.core.task import Task
from onerow.engine.handler.call import Call
from onerow.engine.handler.outcome import Outcome, StopReason
from onerow.engine.handler.requests import Request
from onerow.engine.output.buffer import Output
from onerow.engine.output.masking import Masker


class AttemptSink(Protocol):
    """What an attempt reports to: the attempts in flight of one worker."""

    attempts: "dict[str, Attempt]"
    masker: Masker
    answer: "Callable[[Attempt, Request], str]"
    stop_asked: Callable[[float], bool]
    was_signalled: Callable[[], bool]

    def finish(self, attempt: "Attempt", outcome: Outcome) -> None: ...

    def output_of(self, attempt: "Attempt") -> Output: ...

    def queue_output(self, output: Output) -> None: ...


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

    __slots__ = ("call", "isolated", "lease", "phase", "pipeline", "plan", "runner", "timeout", "weight")

    def __init__(self, plan: Plan, phase: PhasePlan, call: Call, runner: Runner, isolated: Runner) -> None:
        self.plan = plan
        self.phase = phase
        self.pipeline = plan.name
        self.call = call
        self.runner = runner
        self.isolated = isolated
        self.lease = phase.lease.total_seconds()
        self.timeout = None if phase.timeout is None else phase.timeout.total_seconds()
        self.weight = Resources.of(phase) if phase.memory or phase.cpus else None


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
        "runner",
        "served",
        "started_at",
        "stop",
        "stop_at",
        "task",
    )

    def __init__(self, task: Task, served: ServedPhase, in_flight: AttemptSink, sent_at: float) -> None:
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

    def has_begun(self, clock: float) -> bool:
        """Whether its handler has started; False while its process is still starting."""
        return self.started_at is not None and self.started_at <= clock

    @property
    def lease_for(self) -> timedelta:
        return self.served.phase.lease

    def ask_to_stop(self, reason: StopReason) -> None:
        """Stop the work; the first reason counts, except that a lost lease replaces any other."""
        if self.stop is None:
            self.stop_at = time.monotonic()
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

    def stop_reason(self) -> str | None:
        return self.stop

    def progress(self, text: str) -> None:
        masker = self.in_flight.masker
        if masker.text(text) != text:
            text = values.encode(masker.value(values.decode(text)), "progress")
        self.progress_json = text

    def log(self, level: str, text: str) -> None:
        output = self.in_flight.output_of(self)
        output.log(level, text)
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
