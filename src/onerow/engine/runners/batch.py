"""The runner of batch phases: gather attempts until a batch is full or its first has waited long enough, then run it."""

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Sequence
from time import monotonic
from typing import Any

from onerow.core.errors import BadInput
from onerow.core.failure import classify
from onerow.core.outcomes import Cancelled
from onerow.core.plan import PhasePlan
from onerow.core.rules.attempts import Failed, Outcome, Stopped
from onerow.engine.handler.batch import Item, unmentioned
from onerow.engine.handler.context import current
from onerow.engine.runners.attempt import Attempt
from onerow.engine.runners.event_loop import CANCELLED, LoopRunner
from onerow.engine.runners.threads import ThreadHandle


class Batch:
    """One call of a batch handler. Items are removed as they are settled; it stops when all open items should stop."""

    def __init__(self, attempts: Sequence[Attempt], loop: LoopRunner | None) -> None:
        self._served = attempts[0].served
        self._loop = loop
        self._lock = threading.Lock()
        self._handle: Any = None
        self._open: dict[str, Attempt] = {attempt.task.task_id: attempt for attempt in attempts}
        self._items: list[Item[Any]] = []
        self.tasks = [attempt.task for attempt in attempts]

    def run(self) -> None:
        """Call the handler; every attempt has an outcome afterwards."""
        call, clock = self._served.call, monotonic()
        for attempt in list(self._open.values()):
            attempt.handle, attempt.started_at = self, clock
            try:
                self._items.append(
                    Item(attempt.task, call.payload_of(attempt.task), attempt, self._settle, call.errors)
                )
            except BaseException as error:  # a type's own validation may raise anything
                self._finish(attempt, Failed(classify(error, call.errors)))
        raised: BaseException | None = None
        try:
            if self._items:
                current.set(self)
                self._call()
        except BaseException as error:
            raised = error
        self._end(raised)

    def _call(self) -> None:
        function, resources = self._served.call.function, self._served.call.resources
        if self._loop is not None:
            call = self._handle = self._loop.begin(function(self._items, **resources))
            if self._stopped():
                call.interrupt()  # the stop was requested before there was a call to interrupt
            call.wait()
            return
        handle = self._handle = ThreadHandle()
        try:
            if not self._stopped():
                function(self._items, **resources)
        finally:
            handle.leave()

    def _stopped(self) -> bool:
        return all(attempt.stop is not None for attempt in list(self._open.values()))

    def _settle(self, item: Item[Any], outcome: Outcome, error: BaseException | None) -> None:
        handle = self._handle if isinstance(self._handle, ThreadHandle) else None
        if handle is not None:
            handle.leave()  # no interruption between an item and its outcome
        attempt = self._open.get(item.task_id)
        if attempt is not None and attempt.stop is None:
            self._finish(attempt, attempt.judged(outcome, error))
        if handle is not None:
            handle.enter()
            if self._open and self._stopped():
                raise Cancelled("stop")

    def _finish(self, attempt: Attempt, outcome: Outcome) -> None:
        with self._lock:
            if self._open.pop(attempt.task.task_id, None) is None:
                return
        attempt.in_flight.finish(attempt, outcome)

    def _end(self, error: BaseException | None) -> None:
        left = list(self._open.values())
        if not left:
            return
        because = ""
        # By type only: `isinstance` reads the exception's __class__, which may be user code.
        if issubclass(type(error), Cancelled | asyncio.CancelledError):
            because = "" if self._loop is None else CANCELLED
            error = None
        tasks = [attempt.task for attempt in left]
        others = unmentioned(error, self._served.phase, tasks, self._served.call.errors)
        for attempt in left:
            outcome = attempt.judged(others, error, because) if attempt.stop is None else Stopped(attempt.stop)
            self._finish(attempt, outcome)

    def stop(self, attempt: Attempt) -> None:
        """Stop one item; the batch continues without it, unless all open items should stop."""
        if not self._stopped():
            # A timeout applies to all items; one that was cancelled or lost its lease ends at once.
            if attempt.stop in ("cancel", "lost"):
                self._finish(attempt, Stopped(attempt.stop))
        elif self._handle is not None:
            self._handle.interrupt()

    # Link, for output that the handler prints: it belongs to all open items.

    def stop_reason(self) -> str | None:
        return None

    def progress(self, text: str) -> None: ...

    def log(self, level: str, text: str, *, echo: bool = True) -> None:
        for attempt in list(self._open.values()):
            attempt.log(level, text, echo=echo)

    def write(self, level: str, text: str) -> None:
        for attempt in list(self._open.values()):
            attempt.write(level, text)

    def ask(self, request: object) -> str:
        raise BadInput("a batch has no steps or waits of its own", field="batch")


class BatchRunner:
    """Gather the attempts of one phase, and run each batch in a thread (`async def` handlers on the event loop)."""

    def __init__(self, phase: PhasePlan, concurrency: int, loop: LoopRunner | None) -> None:
        self._size = phase.batch_size
        self._within = phase.batch_within.total_seconds()
        self._name = phase.name
        self._concurrency = concurrency
        self._loop = loop
        self.on_loop = loop is not None
        self._waiting: deque[tuple[Attempt, float]] = deque()  # with the time of submission
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._idle = 0  # threads that run no batch
        self._closed = False

    def submit(self, attempts: Sequence[Attempt]) -> None:
        clock = monotonic()
        with self._changed:
            self._waiting.extend((attempt, clock) for attempt in attempts)
            while self._idle * self._size < len(self._waiting) and len(self._threads) < self._concurrency:
                name = f"onerow-batch-{self._name}-{len(self._threads)}"
                thread = threading.Thread(target=self._main, name=name, daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    attempts[0].in_flight.examine(error)  # the drain hands back what no thread takes
                    break
                self._threads.append(thread)
                self._idle += 1
            self._changed.notify_all()

    def stop(self, attempt: Attempt) -> None:
        with self._changed:
            waiting = next((pair for pair in self._waiting if pair[0] is attempt), None)
            if waiting is not None:
                self._waiting.remove(waiting)
        if waiting is not None:
            attempt.finish_unstarted()
        elif attempt.handle is not None:
            attempt.handle.stop(attempt)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _main(self) -> None:
        while (taken := self._next()) is not None:
            attempts = [attempt for attempt in taken if attempt.may_begin()]
            for attempt in taken:
                if attempt not in attempts:
                    attempt.finish_unstarted()
            if attempts:
                contextvars.copy_context().run(Batch(attempts, self._loop).run)
            with self._changed:
                self._idle += 1

    def _next(self) -> list[Attempt] | None:
        """Wait for the next batch and return it; None when closed."""
        with self._changed:
            while not self._closed:
                left = self._waiting[0][1] + self._within - monotonic() if self._waiting else None
                if len(self._waiting) >= self._size or (left is not None and left <= 0):
                    self._idle -= 1
                    count = min(self._size, len(self._waiting))
                    return [self._waiting.popleft()[0] for _ in range(count)]
                self._changed.wait(left)
            return None
