"""Blocking work on threads: `def` handlers, and the attempts of processes, which a thread waits for."""

import asyncio
import contextvars
import ctypes
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from queue import SimpleQueue
from time import monotonic
from typing import Any

from onerow.core.outcomes import Cancelled
from onerow.core.rules.attempts import Outcome
from onerow.engine.handler.batch import alone
from onerow.engine.handler.call import outcome_of_result
from onerow.engine.handler.context import current
from onerow.engine.runners.attempt import Attempt

_ARRIVES_WITHIN = 1000  # loop iterations within which an exception sent to this thread is raised; usually the first


class ThreadRunner:
    """Run blocking work on at most `concurrency` threads, started when needed."""

    on_loop = False

    def __init__(self, concurrency: int, work: "Callable[[Attempt], Outcome]", name: str) -> None:
        self._concurrency = concurrency
        self._work = work
        self._name = name
        self._queue: SimpleQueue[Attempt | None] = SimpleQueue()
        # Queued attempts that no thread has begun and no stop has withdrawn. The thread that removes one reports its
        # outcome.
        self._unbegun: dict[int, Attempt] = {}
        self._threads: list[threading.Thread] = []
        self._idle = 0  # threads that run no attempt
        # An attempt leaves `_unbegun` in the same moment as its thread leaves the idle ones, so that no attempt counts on
        # a thread that another attempt keeps.
        self._lock = threading.Lock()

    def submit(self, attempts: Sequence[Attempt]) -> None:
        with self._lock:
            for attempt in attempts:
                self._unbegun[id(attempt)] = attempt
                self._queue.put(attempt)
            while len(self._threads) < self._concurrency and len(self._unbegun) > self._idle:
                thread = threading.Thread(
                    target=self._main, name=f"onerow-{self._name}-{len(self._threads)}", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError as error:
                    attempts[0].in_flight.examine(error)  # the drain hands back what no thread takes
                    break
                self._threads.append(thread)
                self._idle += 1

    def stop(self, attempt: Attempt) -> None:
        with self._lock:
            withdrawn = self._unbegun.pop(id(attempt), None) is not None
        if withdrawn:
            attempt.finish_unstarted()  # perhaps no thread would ever take it
        elif attempt.handle is not None:
            attempt.handle.interrupt()

    def close(self) -> None:
        for _ in self._threads:
            self._queue.put(None)

    def _main(self) -> None:
        while (attempt := self._queue.get()) is not None:
            with self._lock:
                if self._unbegun.pop(id(attempt), None) is None:
                    continue  # withdrawn
                self._idle -= 1
            outcome = None
            if attempt.may_begin():
                attempt.started_at = monotonic()
                outcome = contextvars.copy_context().run(self._attempt, attempt)
            with self._lock:
                self._idle += 1  # before the end is known: the next attempt may come at once
            if outcome is None:
                attempt.finish_unstarted()
            else:
                attempt.in_flight.finish(attempt, outcome)

    def _attempt(self, attempt: Attempt) -> Outcome:
        current.set(attempt)
        try:
            return self._work(attempt)
        except BaseException as error:
            return attempt.outcome_of(error)


class ThreadHandle:
    """Interrupts a Python thread between two of its instructions; a blocking C call cannot be interrupted."""

    __slots__ = ("_inside", "_lock", "_pending", "_thread")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread = threading.get_ident()
        self._inside = True
        self._pending = False  # an interruption was sent and may not have arrived yet

    def interrupt(self) -> None:
        with self._lock:
            if self._inside:
                self._pending = True
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), ctypes.py_object(Cancelled))

    def leave(self) -> None:
        """Block interruptions, so that none hits what the thread does next."""
        with self._lock:
            self._inside = False
            pending, self._pending = self._pending, False
        if pending:
            # Received here instead of withdrawn: a withdrawn exception leaves CPython's flag for pending exceptions set.
            # That slows down every later call in the process, and a call under a profiler or debugger never returns.
            with suppress(Cancelled):
                for _ in range(_ARRIVES_WITHIN):
                    pass

    def enter(self) -> None:
        """Allow interruptions again."""
        with self._lock:
            self._inside = True


class OwnLoop:
    """An event loop for one attempt, in the attempt's own thread; an interruption cancels the coroutine."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None
        self._asked = False

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Return or raise what the coroutine does; raise CancelledError if it was interrupted."""
        return asyncio.run(self._main(work))

    def interrupt(self) -> None:
        with self._lock:
            self._asked = True
            if self._running is not None:
                loop, task = self._running
                loop.call_soon_threadsafe(task.cancel)

    async def _main(self, work: Coroutine[Any, Any, Any]) -> Any:
        task = asyncio.ensure_future(work)
        with self._lock:
            self._running = (asyncio.get_running_loop(), task)
            if self._asked:
                task.cancel()
        try:
            return await task
        finally:
            with self._lock:
                self._running = None  # the loop is about to close


def run_in_thread(attempt: Attempt) -> Outcome:
    """Call a handler in this thread; an `async def` handler that cannot get its own process runs on its own loop."""
    if attempt.served.call.handler.is_async:
        loop = attempt.handle = OwnLoop()
        return _called(attempt, loop.run)
    handle = attempt.handle = ThreadHandle()
    try:
        try:
            return _called(attempt, lambda result: result)
        finally:
            handle.leave()
    except Cancelled as error:
        return attempt.outcome_of(error)


def _called(attempt: Attempt, run: Callable[[Any], Any]) -> Outcome:
    call = attempt.served.call
    if attempt.stop is not None:
        raise Cancelled(attempt.stop)  # requested before there was a handle to interrupt
    if call.takes_items:
        return alone(call, attempt.task, attempt, run)  # a suspect of a batch phase runs as a batch of one
    positional, named = call.arguments(attempt.task, attempt)
    return outcome_of_result(run(call.function(*positional, **named)))
