"""Runners: they take attempts, run their handlers within the concurrency, and can stop them."""

import asyncio
import contextvars
import ctypes
import threading
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from queue import SimpleQueue
from time import monotonic
from typing import Any, cast

from onerow.core.failure import classify, failure
from onerow.core.outcomes import Cancelled, Parked, Snooze
from onerow.engine.handler.batch import alone
from onerow.engine.handler.context import Context, current
from onerow.engine.handler.outcome import Failed, Outcome, Stopped, Unstarted, Waiting, outcome_of_result, snoozed
from onerow.engine.runners.attempt import Attempt
from onerow.engine.runners.blocking import LoopWatch

_ARRIVES_WITHIN = 1000  # loop iterations within which an exception sent to this thread is raised; usually the first
_YIELD_AFTER = 0.005


def outcome_of(attempt: Attempt, error: BaseException) -> Outcome:
    """Return the outcome of a handler that raised; never raises, whatever the exception's own methods do."""
    try:
        return _outcome_of(attempt, error)
    except BaseException:
        return Failed(classify(error)) if attempt.stop is None else Stopped(attempt.stop)


def _outcome_of(attempt: Attempt, error: BaseException) -> Outcome:
    if (parked := parked_in(error)) is not None and attempt.stop is None:
        return Waiting(parked.name, parked.awaiting, parked.timeout)
    if attempt.stop is not None and not isinstance(error, Snooze):
        return Stopped(attempt.stop)
    if isinstance(error, Snooze):
        return snoozed(error)
    if isinstance(error, asyncio.CancelledError):
        return Failed(
            failure("the handler was cancelled, but nobody asked for it", "unknown", exception="CancelledError")
        )
    if isinstance(error, Cancelled):
        return Failed(
            failure("the handler raised Cancelled, but nobody asked for it", "unknown", exception="Cancelled")
        )
    return Failed(classify(error))


def parked_in(error: BaseException) -> Parked | None:
    """Return the wait that ended an attempt, also if a task group wrapped it; else None."""
    found = [error]
    while found:
        each = found.pop()
        if issubclass(type(each), Parked):
            return cast("Parked", each)
        if issubclass(type(each), BaseExceptionGroup):
            found += cast("BaseExceptionGroup[BaseException]", each).exceptions
    return None


def unbegun(attempt: Attempt) -> Outcome:
    """Return the outcome of an attempt that was stopped before it began."""
    return Unstarted() if attempt.stop in (None, "drain") else Stopped(attempt.stop)


class LoopRunner:
    """Run `async def` handlers on one event loop, in its own thread.

    An asyncio task per attempt would cost more than all other Python code that runs for it. So a few long-lived asyncio
    tasks take attempts one after the other; one that a handler left changed (context, pending cancel) is replaced.
    """

    on_loop = True

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._waiting: deque[Attempt] = deque()
        self._loop_tasks: set[asyncio.Task[None]] = set()
        self._context = contextvars.copy_context()
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._main, name="onerow-loop", daemon=True)
        self.watch = LoopWatch(self._loop, lambda: self._thread.ident)
        self._thread.start()

    def submit(self, attempts: Sequence[Attempt]) -> None:
        self._loop.call_soon_threadsafe(self._take, attempts)

    def stop(self, attempt: Attempt) -> None:
        self._loop.call_soon_threadsafe(self._cancel, attempt)

    def begin(self, work: Coroutine[Any, Any, Any]) -> "LoopCall":
        """Run a coroutine on the loop, for a caller in another thread."""
        return LoopCall(self._loop, work)

    def close(self) -> None:
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5 if self.watch.answers else 0.1)

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._closed:
            try:
                self._loop.run_forever()
            except BaseException:
                # SystemExit or KeyboardInterrupt in a task or callback ends `run_forever`; other attempts need the loop.
                traceback.print_exc()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def _take(self, attempts: Sequence[Attempt]) -> None:
        self._waiting.extend(attempts)
        self._add_loop_tasks()

    def _add_loop_tasks(self) -> None:
        for _ in range(min(len(self._waiting), self._concurrency - len(self._loop_tasks))):
            task = self._loop.create_task(self._work(), context=self._context.copy())
            self._loop_tasks.add(task)
            task.add_done_callback(self._on_loop_task_end)

    def _on_loop_task_end(self, task: asyncio.Task[None]) -> None:
        self._loop_tasks.discard(task)
        if self._waiting:
            self._add_loop_tasks()

    async def _work(self) -> None:
        """Run attempts until none waits, or until one has changed this asyncio task."""
        me = asyncio.current_task()
        assert me is not None
        current.set(None)
        clean = contextvars.copy_context()
        waiting = self._waiting
        yield_at = monotonic() + _YIELD_AFTER
        while waiting:
            attempt = waiting.popleft()
            if attempt.stop is not None:
                attempt.in_flight.finish(attempt, unbegun(attempt))
                continue
            attempt.started_at = began = monotonic()
            if began > yield_at:
                # Handlers that never wait must not block the loop for all others.
                waiting.appendleft(attempt)
                attempt.started_at = None
                await asyncio.sleep(0)
                yield_at = monotonic() + _YIELD_AFTER
                continue
            attempt.handle = me
            current.set(attempt)
            try:
                call = attempt.served.call
                context = Context(attempt.task, attempt) if call.wants_context else None
                positional, named = call.arguments(attempt.task, context)
                outcome = outcome_of_result(await call.function(*positional, **named))
                if attempt.stop_reason() == "timeout" and not me.cancelling():
                    outcome = Stopped("timeout")  # it blocked the loop past its timeout, so that no cancel reached it
            except BaseException as error:
                outcome = outcome_of(attempt, error)
            current.set(None)
            attempt.handle = None
            attempt.in_flight.finish(attempt, outcome)
            if attempt.stop_reason() is not None or me.cancelling() or contextvars.copy_context() != clean:
                return

    def _cancel(self, attempt: Attempt) -> None:
        if attempt.handle is not None:
            attempt.handle.cancel()
        elif attempt in self._waiting:
            self._waiting.remove(attempt)
            attempt.in_flight.finish(attempt, unbegun(attempt))


class LoopCall:
    """A coroutine on an event loop, which another thread can wait for and interrupt."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any]) -> None:
        self._loop = loop
        self._work = work
        self._task: asyncio.Task[Any] | None = None
        self._ended = threading.Event()
        self._error: BaseException | None = None
        context = contextvars.copy_context()
        loop.call_soon_threadsafe(lambda: context.run(self._start))

    def wait(self) -> None:
        """Wait until it has ended, even if interrupted; raise what it raised."""
        self._ended.wait()
        if self._error is not None:
            raise self._error

    def interrupt(self) -> None:
        self._loop.call_soon_threadsafe(lambda: self._task is not None and self._task.cancel())

    def _start(self) -> None:
        self._task = self._loop.create_task(self._work)
        self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[Any]) -> None:
        self._error = asyncio.CancelledError() if task.cancelled() else task.exception()
        self._ended.set()


class ThreadRunner:
    """Run blocking work on at most `concurrency` threads, started when needed."""

    on_loop = False

    def __init__(self, concurrency: int, work: "Callable[[Attempt], Outcome]", name: str) -> None:
        self._concurrency = concurrency
        self._work = work
        self._name = name
        self._queue: SimpleQueue[Attempt | None] = SimpleQueue()
        # Queued attempts that no thread has taken and no stop has withdrawn. The thread that removes one reports its
        # outcome.
        self._unbegun: dict[int, Attempt] = {}
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._lock = threading.Lock()

    def submit(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            self._unbegun[id(attempt)] = attempt
            self._queue.put(attempt)
        with self._lock:
            while len(self._threads) < self._concurrency and self._queue.qsize() > self._idle:
                thread = threading.Thread(
                    target=self._main, name=f"onerow-{self._name}-{len(self._threads)}", daemon=True
                )
                self._threads.append(thread)
                self._idle += 1
                thread.start()

    def stop(self, attempt: Attempt) -> None:
        if self._unbegun.pop(id(attempt), None) is not None:
            attempt.in_flight.finish(attempt, unbegun(attempt))  # perhaps no thread would ever take it
        elif attempt.handle is not None:
            attempt.handle.interrupt()

    def close(self) -> None:
        for _ in self._threads:
            self._queue.put(None)

    def _main(self) -> None:
        while (attempt := self._queue.get()) is not None:
            if self._unbegun.pop(id(attempt), None) is None:
                continue  # withdrawn
            self._idle -= 1
            if attempt.stop is not None:
                outcome = unbegun(attempt)
            else:
                attempt.started_at = monotonic()
                outcome = contextvars.copy_context().run(self._attempt, attempt)
            self._idle += 1
            attempt.in_flight.finish(attempt, outcome)

    def _attempt(self, attempt: Attempt) -> Outcome:
        current.set(attempt)
        try:
            return self._work(attempt)
        except BaseException as error:
            return outcome_of(attempt, error)


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
                _raise_in(self._thread, Cancelled)

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


def _raise_in(thread: int, error: type[BaseException]) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))


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
            return _called(attempt, _unchanged)
        finally:
            handle.leave()
    except Cancelled as error:
        return outcome_of(attempt, error)


def _called(attempt: Attempt, run: Callable[[Any], Any]) -> Outcome:
    call = attempt.served.call
    if attempt.stop is not None:
        raise Cancelled(attempt.stop)  # requested before there was a handle to interrupt
    if call.takes_items:
        return alone(call, attempt.task, attempt, run)  # a suspect of a batch phase runs as a batch of one
    context = Context(attempt.task, attempt) if call.wants_context else None
    positional, named = call.arguments(attempt.task, context)
    return outcome_of_result(run(call.function(*positional, **named)))


def _unchanged(result: Any) -> Any:
    return result
