"""Runners: where handlers run. Each takes attempts, starts them as room allows, and can stop them."""

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

_ARRIVES_WITHIN = 1000  # loop iterations in which an exception sent to this thread is raised; the first one does
_YIELD_AFTER = 0.005


def outcome_of(attempt: Attempt, error: BaseException) -> Outcome:
    """What it means that a handler raised; never raises itself, whatever the exception's own methods do."""
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
    """The wait that ended an attempt; a task group wraps it."""
    found = [error]
    while found:
        each = found.pop()
        if issubclass(type(each), Parked):
            return cast("Parked", each)
        if issubclass(type(each), BaseExceptionGroup):
            found += cast("BaseExceptionGroup[BaseException]", each).exceptions
    return None


def unbegun(attempt: Attempt) -> Outcome:
    """What it means that an attempt was stopped before it began."""
    return Unstarted() if attempt.stop in (None, "drain") else Stopped(attempt.stop)


class LoopRunner:
    """`async def` handlers on one event loop, in a thread of its own.

    An asyncio task per attempt would cost more than all else that we do in Python for it. So a few long-lived tasks
    take attempts one after the other; one that a handler left changed (its context, a pending cancel) is replaced.
    """

    on_loop = True

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._waiting: deque[Attempt] = deque()
        self._in_flight: set[asyncio.Task[None]] = set()
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
                # SystemExit and KeyboardInterrupt of a task or callback end `run_forever`; all others need the loop.
                traceback.print_exc()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def _take(self, attempts: Sequence[Attempt]) -> None:
        self._waiting.extend(attempts)
        self._more_hands()

    def _more_hands(self) -> None:
        for _ in range(min(len(self._waiting), self._concurrency - len(self._in_flight))):
            task = self._loop.create_task(self._work(), context=self._context.copy())
            self._in_flight.add(task)
            task.add_done_callback(self._end_of_hand)

    def _end_of_hand(self, task: asyncio.Task[None]) -> None:
        self._in_flight.discard(task)
        if self._waiting:
            self._more_hands()

    async def _work(self) -> None:
        """Take attempts until none waits, or until one has left its mark on this task."""
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
                # Handlers that never wait must not keep the loop from everyone else.
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
                    outcome = Stopped("timeout")  # it blocked the loop past its time, so that no cancel reached it
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
    """A coroutine on an event loop, as something that another thread waits for and interrupts."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any]) -> None:
        self._loop = loop
        self._work = work
        self._task: asyncio.Task[Any] | None = None
        self._ended = threading.Event()
        self._error: BaseException | None = None
        context = contextvars.copy_context()
        loop.call_soon_threadsafe(lambda: context.run(self._start))

    def wait(self) -> None:
        """Until it has ended, whatever was asked of it; raises what it raised."""
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
    """Blocking work on a fixed set of threads, started as they are needed."""

    on_loop = False

    def __init__(self, concurrency: int, work: "Callable[[Attempt], Outcome]", name: str) -> None:
        self._concurrency = concurrency
        self._work = work
        self._name = name
        self._queue: SimpleQueue[Attempt | None] = SimpleQueue()
        # Those of the queue that no thread has taken and no stop has withdrawn: who removes one decides its outcome.
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
            attempt.in_flight.finish(attempt, unbegun(attempt))  # no thread may ever come for it
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
    """Interrupts a Python thread between two of its instructions; a call that blocks in C is out of reach."""

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
        """After this no interruption arrives, so that it can't hit what the thread does next."""
        with self._lock:
            self._inside = False
            pending, self._pending = self._pending, False
        if pending:
            # Received here instead of withdrawn: a withdrawn exception leaves CPython's flag for pending exceptions set,
            # which slows down every later call in the process and makes one under a profiler or debugger endless.
            with suppress(Cancelled):
                for _ in range(_ARRIVES_WITHIN):
                    pass

    def enter(self) -> None:
        """Interruptions arrive again."""
        with self._lock:
            self._inside = True


def _raise_in(thread: int, error: type[BaseException]) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))


class OwnLoop:
    """An event loop for one attempt, in the attempt's own thread; to interrupt it is to cancel what it runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None
        self._asked = False

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """What the coroutine returns or raises; CancelledError when it was interrupted."""
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
    """Call a handler in this thread; an `async def` one, for want of a process of its own, on a loop of its own."""
    if attempt.served.call.handler.is_async:
        loop = attempt.handle = OwnLoop()
        return _called(attempt, loop.run)
    handle = attempt.handle = ThreadHandle()
    try:
        try:
            return _called(attempt, _as_it_is)
        finally:
            handle.leave()
    except Cancelled as error:
        return outcome_of(attempt, error)


def _called(attempt: Attempt, run: Callable[[Any], Any]) -> Outcome:
    call = attempt.served.call
    if attempt.stop is not None:
        raise Cancelled(attempt.stop)  # asked before there was a handle to interrupt us by
    if call.takes_items:
        return alone(call, attempt.task, attempt, run)  # a batch of one, since it crashed a worker
    context = Context(attempt.task, attempt) if call.wants_context else None
    positional, named = call.arguments(attempt.task, context)
    return outcome_of_result(run(call.function(*positional, **named)))


def _as_it_is(result: Any) -> Any:
    return result
