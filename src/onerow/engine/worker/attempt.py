"""One attempt in this worker's hands: the task, its call, and how to stop it."""

import time
from typing import TYPE_CHECKING, Any

from onerow.core import values
from onerow.core.outcomes import Cancelled
from onerow.core.plan import PhasePlan, Plan
from onerow.core.task import Task
from onerow.engine.asks import Request
from onerow.engine.calls import Call
from onerow.engine.settling import StopReason
from onerow.engine.worker.room import Weight

if TYPE_CHECKING:
    from onerow.engine.worker.hands import Hands
    from onerow.engine.worker.output import Output
    from onerow.engine.worker.runners import Runner


class Lane:
    """A phase that this worker serves: its plan, its call, and who runs it."""

    __slots__ = ("call", "isolated", "lease", "phase", "pipeline", "plan", "runner", "timeout", "weight")

    def __init__(self, plan: Plan, phase: PhasePlan, call: Call, runner: "Runner", isolated: "Runner") -> None:
        self.plan = plan
        self.phase = phase
        self.pipeline = plan.name
        self.call = call
        self.runner = runner
        self.isolated = isolated
        self.lease = phase.lease.total_seconds()
        self.timeout = None if phase.timeout is None else phase.timeout.total_seconds()
        self.weight = Weight.of(phase) if phase.memory or phase.cpus else None


class Attempt:
    """A claimed task until its outcome is written. Times are monotonic seconds."""

    __slots__ = (
        "beat_at",
        "ended_at",
        "excused",
        "handle",
        "hands",
        "lane",
        "output",
        "progress_json",
        "runner",
        "started_at",
        "stop",
        "stop_at",
        "task",
    )

    def __init__(self, task: Task, lane: Lane, hands: "Hands", sent_at: float) -> None:
        self.task = task
        self.lane = lane
        self.hands = hands
        # A task that crashed a worker runs alone from then on, so that it can't take neighbours along.
        self.runner: Runner = lane.runner if task.crash_count == 0 else lane.isolated
        self.beat_at = sent_at  # the lease counts from when we asked for it, not from when we were told
        self.started_at: float | None = None
        self.ended_at = 0.0
        self.excused = 0.0  # seconds of its time in which another attempt blocked the event loop
        self.stop: StopReason | None = None
        self.stop_at = 0.0
        self.handle: Any = None
        self.progress_json: str | None = None
        self.output: Output | None = None  # once it has said something

    def ask_to_stop(self, reason: StopReason) -> None:
        """End the work; the first reason counts, except that a lost lease outweighs all."""
        if self.stop is None:
            self.stop_at = time.monotonic()
        elif reason != "lost" or self.stop == "lost":
            return
        self.stop = reason
        self.runner.stop(self)

    def heard(self, task: Task) -> None:
        """A later state of the row is known, by our own write or our own look."""
        if task.version > self.task.version:
            self.task = task

    # Link, for the context of a handler in this process.

    def stop_reason(self) -> str | None:
        return self.stop

    def progress(self, text: str) -> None:
        masker = self.hands.masker
        if masker.text(text) != text:
            text = values.encode(masker.value(values.decode(text)), "progress")
        self.progress_json = text

    def log(self, level: str, text: str) -> None:
        output = self.hands.output_of(self)
        output.log(level, text)
        self.hands.let_speak(output)

    def write(self, level: str, text: str) -> None:
        output = self.hands.output_of(self)
        output.write(level, text)
        if len(output):
            self.hands.let_speak(output)

    def ask(self, request: Request) -> str:
        """Answered in the handler's own thread, where no interruption may hit the store's work."""
        handle = self.handle
        shielded = hasattr(handle, "leave")
        if shielded:
            handle.leave()
        try:
            self._check()
            answer = self.hands.answer(self, request)
        finally:
            if shielded:
                handle.enter()
        self._check()
        return answer

    def _check(self) -> None:
        if self.stop is not None:
            raise Cancelled(self.stop)
