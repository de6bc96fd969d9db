"""The runner of Rehearsal: runs handlers one by one in the test's thread and injects failures."""

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine, Sequence
from time import monotonic
from typing import Any

from onerow.core.failure import failure, is_user_code
from onerow.core.rules.attempts import Crashed, Outcome, Stopped
from onerow.engine.handler.call import outcome_of_error, outcome_of_result
from onerow.engine.handler.context import current
from onerow.engine.handler.requests import Remember, Request
from onerow.engine.processes import ProcessHost
from onerow.engine.runners.attempt import Attempt
from onerow.engine.runners.batch import Batch
from onerow.engine.runners.command import Commands
from onerow.engine.runners.event_loop import LoopCall
from onerow.engine.runners.threads import run_in_thread
from onerow.pipelines.command import Command

_GRACE = 5.0


class WorkerDied(BaseException):
    """Raised where the process of a handler is to die: nothing after it runs."""


class Accidents:
    """The planned failures of each phase."""

    def __init__(self) -> None:
        self._planned: list[tuple[str, str, Any]] = []  # kind, phase, detail

    def plan(self, kind: str, phase: str, what: Any = None, times: int = 1) -> None:
        self._planned += [(kind, phase, what)] * times

    def take(self, kind: str, attempt: Attempt, what: Any = None) -> Any:
        """Remove and return the next planned failure of this kind for the attempt's phase, or None."""
        task = attempt.task
        for index, planned in enumerate(self._planned):
            known, phase, detail = planned
            if known == kind and phase in (task.phase, f"{task.pipeline}.{task.phase}") and what in (None, detail):
                del self._planned[index]
                return planned
        return None


class InlineRunner:
    """Runs attempts before `submit` returns."""

    on_loop = False

    def __init__(self, accidents: Accidents) -> None:
        self._accidents = accidents
        self._loop: _Loop | None = None
        self._process_host: ProcessHost | None = None
        self.stubs: dict[str, Callable[[Attempt], Any]] = {}
        self.raised: dict[str, BaseException] = {}  # by task: what its last attempt raised

    def submit(self, attempts: Sequence[Attempt]) -> None:
        served = attempts[0].served
        if served.phase.kind == "batch":
            size = served.phase.batch_size
            for start in range(0, len(attempts), size):
                self._batch(attempts[start : start + size])
            return
        for attempt in attempts:
            contextvars.copy_context().run(self._run, attempt)

    def stop(self, attempt: Attempt) -> None:
        """Do nothing: no attempt runs between two calls."""

    def close(self) -> None:
        if self._loop is not None:
            self._loop.close()
        if self._process_host is not None:
            self._process_host.close()

    def _run(self, attempt: Attempt) -> None:
        attempt.started_at = monotonic()
        current.set(attempt)
        try:
            outcome = self._outcome(attempt)
            if self._accidents.take("crash after", attempt):
                raise WorkerDied
        except WorkerDied:
            self._die([attempt])
            return
        attempt.in_flight.finish(attempt, outcome)

    def _outcome(self, attempt: Attempt) -> Outcome:
        self.raised.pop(attempt.task.task_id, None)
        try:
            self._before(attempt)
            if self._accidents.take("timeout", attempt):
                return Stopped("timeout")
            stub = self.stubs.get(f"{attempt.task.pipeline}.{attempt.task.phase}") or self.stubs.get(attempt.task.phase)
            if stub is not None:
                return outcome_of_result(stub(attempt))
            return self._call(attempt)
        except WorkerDied:
            raise
        except BaseException as error:
            trace = error.__traceback__
            while trace is not None and not is_user_code(trace.tb_frame.f_code.co_filename):
                trace = trace.tb_next
            self.raised[attempt.task.task_id] = error.with_traceback(trace or error.__traceback__)
            return outcome_of_error(error, attempt.stop, attempt.served.call.errors)

    def _before(self, attempt: Attempt) -> None:
        if self._accidents.take("crash before", attempt):
            raise WorkerDied
        if (planned := self._accidents.take("failure", attempt)) is not None:
            raise planned[2]

    def _call(self, attempt: Attempt) -> Outcome:
        call = attempt.served.call
        if isinstance(call.function, Command):
            self._process_host = self._process_host or ProcessHost()
            return Commands(self._process_host, _GRACE, leased=False)(attempt)
        if not call.handler.is_async:
            return run_in_thread(attempt)
        positional, named = call.arguments(attempt.task, attempt)
        results: list[Any] = []

        async def run() -> None:
            results.append(await call.function(*positional, **named))

        self._on_loop().begin(run()).wait()
        return outcome_of_result(results[0])

    def _batch(self, attempts: Sequence[Attempt]) -> None:
        started: list[Attempt] = []
        for attempt in attempts:
            try:
                self._before(attempt)
            except WorkerDied:
                self._die(attempts)
                return
            except BaseException as error:
                attempt.in_flight.finish(attempt, outcome_of_error(error, attempt.stop, attempt.served.call.errors))
            else:
                started.append(attempt)
        if started:
            is_async = started[0].served.call.handler.is_async
            batch = Batch(started, self._on_loop() if is_async else None)  # type: ignore[arg-type]
            contextvars.copy_context().run(batch.run)

    def _die(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            if attempt.task.suspect or attempt.served.phase.isolated:
                # The attempt runs in its own process, whose death leaves the worker alive.
                message = f"the process that ran {attempt.task.phase} died, as rehearsed"
                attempt.in_flight.finish(attempt, Crashed(failure(message, "crash", exception="Crash")))
            else:
                attempt.in_flight.attempts.pop(attempt.task.task_id, None)

    def after_ask(self, attempt: Attempt, request: Request) -> None:
        """Raise WorkerDied after a step was stored, if that is planned."""
        if isinstance(request, Remember) and self._accidents.take("crash after step", attempt, request.name):
            raise WorkerDied

    def begin(self, work: Coroutine[Any, Any, Any]) -> LoopCall:
        """Start a coroutine on the loop of `async def` handlers."""
        return self._on_loop().begin(work)

    def _on_loop(self) -> "_Loop":
        if self._loop is None:
            self._loop = _Loop()
        return self._loop


class _Loop:
    """An event loop in a separate thread, because the test itself may run on one."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="onerow-rehearsal", daemon=True)
        self._thread.start()

    def begin(self, work: Coroutine[Any, Any, Any]) -> LoopCall:
        return LoopCall(self._loop, work)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
