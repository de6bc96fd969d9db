"""Runners of the simulation: each attempt is a greenlet of its worker's process, and records its body."""

import contextvars
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from onerow.core.failure import failure
from onerow.core.outcomes import Cancelled, Parked
from onerow.core.plan import PhasePlan
from onerow.core.rules.attempts import Crashed, Outcome
from onerow.engine.handler.call import Call, outcome_of_error, outcome_of_result
from onerow.engine.handler.context import current as current_attempt
from onerow.engine.runners.attempt import Attempt, ServedPhase
from onerow.pipelines.pipeline import Pipeline
from tests.schedules.world import Actor, Killed, current, monotonic


class Poison(Exception):
    """Raised by a handler that kills the process in which it runs."""


Recording = Callable[..., None]
recording: list[Recording] = []  # of the present run


class SimulatedRunner:
    """Runs attempts as greenlets; isolated ones in a process of their own, whose death leaves the worker alive."""

    on_loop = False

    def __init__(self, *, isolated: bool) -> None:
        self._isolated = isolated

    def submit(self, attempts: Sequence[Attempt]) -> None:
        world = current()
        for attempt in attempts:
            context = contextvars.copy_context()
            begin = partial(context.run, self._run, attempt)
            body = world.start(world.process, f"body {attempt.task.task_id}", begin)
            attempt.handle = Body(body)

    def stop(self, attempt: Attempt) -> None:
        current().interrupt(attempt.handle.actor, Cancelled(attempt.stop))

    def close(self) -> None:
        """Nothing to end."""

    def _run(self, attempt: Attempt) -> None:
        world, task = current(), attempt.task
        if not attempt.may_begin():
            attempt.finish_unstarted()
            return
        attempt.started_at = monotonic()
        current_attempt.set(attempt)
        process = world.process
        body = {
            "task": task.task_id, "phase": task.phase, "worker": process.name, "pid": process.pid, "token": task.token,
            "attempt": task.attempt, "key": task.limit_key or "",
        }  # fmt: skip
        recording[-1]("begin", hash=task.payload_json, **body)
        if not process.alive:
            raise Killed
        result, outcome = "", "done"
        settled: Outcome
        try:
            call = attempt.served.call
            positional, named = call.arguments(task, attempt)
            settled = outcome_of_result(call.function(*positional, **named))
            result = getattr(settled, "result", None) or ""
        except Killed:
            raise
        except Poison:
            if not self._isolated:
                world.kill(process)
                raise Killed from None
            outcome, settled = "failed", Crashed(failure("its process died", "crash", exception="Crash"))
        except BaseException as error:
            outcome = "stopped" if isinstance(error, Cancelled | Parked) else "failed"
            settled = outcome_of_error(error, attempt.stop, attempt.served.call.errors)
        recording[-1]("end", hash=result, outcome=outcome, **body)
        attempt.in_flight.finish(attempt, settled)


class Body:
    """The handle of a running attempt."""

    def __init__(self, actor: Actor) -> None:
        self.actor = actor


class SimulatedRunners:
    """Takes the place of `Runners` in a worker."""

    loop = None

    def __init__(self, *args: Any) -> None:
        self.prestarted = Idle()
        self._threads = SimulatedRunner(isolated=False)
        self._isolated = SimulatedRunner(isolated=True)

    def serve(self, pipeline: Pipeline, phase: PhasePlan) -> ServedPhase:
        call = Call(pipeline.handlers[phase.name], pipeline.plan)
        return ServedPhase(pipeline.plan, phase, call, self._threads, self._isolated)

    def open_resources(self, *args: Any) -> None:
        """No handler here has resources."""

    def close(self) -> None:
        """Nothing to end."""


class Idle:
    """A role with nothing to do."""

    def tick(self, now: datetime) -> float:
        return 3600.0


class NoProcesses:
    """Takes the place of `ProcessHost`: no real process is started."""

    def close(self, within: float = 0.0) -> None:
        """Nothing to end."""


class NoCapture:
    """Takes the place of `Capture`: output of handlers is not captured."""

    echo = None

    def __init__(self, *args: Any, **named: Any) -> None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...
