"""The event loop of `async def` handlers: run attempts on it, and find the one that blocks it."""

import asyncio
import contextvars
import sys
import threading
import traceback
from asyncio.events import Handle
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from time import monotonic
from types import FrameType
from typing import Any

from onerow.core.rules.attempts import Stopped
from onerow.engine.handler.call import outcome_of_result
from onerow.engine.handler.context import Link, current
from onerow.engine.runners.attempt import Attempt

_YIELD_AFTER = 0.005  # seconds
_TOLERANCE = 0.05  # seconds that a callback may wait on a loop that is busy but not blocked
_LONG = 1.0  # seconds of a block that is reported
_RUN_CODE = Handle._run.__code__

CANCELLED = "ran it in an asyncio task that was cancelled without a request"
"""Why an attempt ended that something other than the worker cancelled; follows 'its worker'."""

BLOCKED = "it blocked the event loop: use await, or a def handler"
"""Why an attempt ran longer than its timeout."""

_ALL_CANCELLED = "ran handlers on an event loop whose tasks were cancelled together without a request"
_BROKEN = "ran handlers on an event loop that one of them closed, or whose executor it shut down"


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
        self._asked: dict[asyncio.Task[Any], bool] = {}  # asyncio tasks of this runner → whether it has cancelled them
        self._context = contextvars.copy_context()
        self._closed = False
        self.give_up: Callable[[str], None] = lambda why: None  # called if the loop can run no more attempts
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._main, name="onerow-loop", daemon=True)
        self.watch = LoopWatch(self._loop, lambda: self._thread.ident)
        self._thread.start()

    def submit(self, attempts: Sequence[Attempt]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._take, attempts)
        except RuntimeError:  # it is closed
            for attempt in attempts:
                attempt.finish_unstarted()

    def stop(self, attempt: Attempt) -> None:
        with suppress(RuntimeError):  # the loop is closed, and the attempt ends with this process
            self._loop.call_soon_threadsafe(self._cancel, attempt)

    def begin(self, work: Coroutine[Any, Any, Any]) -> "LoopCall":
        """Run a coroutine on the loop, for a caller in another thread."""
        return LoopCall(self._loop, work, self._asked)

    def close(self) -> None:
        self._closed = True
        with suppress(RuntimeError):
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
            if self._loop.is_closed():
                self.give_up(_BROKEN)
                return
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
            self._asked[task] = False
            task.add_done_callback(self._on_loop_task_end)

    def _on_loop_task_end(self, task: asyncio.Task[None]) -> None:
        self._loop_tasks.discard(task)
        del self._asked[task]
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
            if not attempt.may_begin():
                attempt.finish_unstarted()
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
                positional, named = call.arguments(attempt.task, attempt)
                outcome = outcome_of_result(await call.function(*positional, **named))
                if attempt.stop_reason() == "timeout" and not me.cancelling():
                    outcome = Stopped("timeout", BLOCKED)  # no cancel reached it
            except BaseException as error:
                outcome = attempt.outcome_of(error, self._cause_outside(me, attempt))
            current.set(None)
            attempt.handle = None
            attempt.in_flight.finish(attempt, outcome)
            if attempt.stop_reason() is not None or me.cancelling() or contextvars.copy_context() != clean:
                self._cause_outside(me, attempt)  # it may have returned although it was cancelled
                return

    def _cause_outside(self, me: asyncio.Task[Any], attempt: Attempt) -> str:
        """Return why an attempt on this loop may have failed for a cause outside its task; '' if nothing hints at one.

        If the cause affects the other attempts too, the process becomes unusable.
        """
        if attempt.stop is not None:
            return ""
        if getattr(self._loop, "_executor_shutdown_called", False):  # then `asyncio.to_thread` raises in all attempts
            self.give_up(_BROKEN)
        if not me.cancelling():
            return ""
        if any(task.cancelling() and not asked for task, asked in self._asked.items() if task is not me):
            self.give_up(_ALL_CANCELLED)
        return CANCELLED

    def _cancel(self, attempt: Attempt) -> None:
        if attempt.handle is not None:
            self._asked[attempt.handle] = True
            attempt.handle.cancel()
        elif attempt in self._waiting:
            self._waiting.remove(attempt)
            attempt.finish_unstarted()


class LoopCall:
    """A coroutine on an event loop, which another thread can wait for and interrupt."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Coroutine[Any, Any, Any],
        asked: dict[asyncio.Task[Any], bool] | None = None,
    ) -> None:
        self._loop = loop
        self._work = work
        self._asked = {} if asked is None else asked
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
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._cancel)

    def _start(self) -> None:
        self._task = self._loop.create_task(self._work)
        self._asked[self._task] = False
        self._task.add_done_callback(self._end)

    def _cancel(self) -> None:
        if self._task is not None and not self._task.done():
            self._asked[self._task] = True
            self._task.cancel()

    def _end(self, task: asyncio.Task[Any]) -> None:
        del self._asked[task]
        self._error = asyncio.CancelledError() if task.cancelled() else task.exception()
        self._ended.set()


class LoopWatch:
    """Send callbacks to the loop and measure how long they wait; `look` is called from one other thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: Callable[[], int | None]) -> None:
        self._loop = loop
        self._thread = thread
        self._sent_at = self._counted_to = self.free_at = monotonic()
        self._answered_at: float | None = self._sent_at  # None while the callback waits
        self._blocker: Link | None = None
        self.on_block: Callable[[Link, float], None] = lambda blocker, seconds: None  # called after a long block

    @property
    def answers(self) -> bool:
        """Whether the last callback has run; if not, the loop may be blocked."""
        return self._answered_at is not None

    def look(self, clock: float) -> tuple[float, Link | None]:
        """Return the seconds for which the loop was blocked since the last call, and the attempt that blocked it.

        A block counts from the last time at which the loop was seen to be free (`free_at`), so that waiting attempts
        are excused for too much rather than too little.
        """
        answered = self._answered_at
        if answered is None:
            if clock - self._sent_at < _TOLERANCE:
                return 0.0, None
            # Relevant blocks are long compared with the time between two calls: the attempt seen last counts.
            blocker = occupant(self._thread())
            if blocker is not self._blocker:
                self._report(clock)
            self._blocker = blocker
            seconds, self._counted_to = clock - self._counted_to, clock
            return seconds, self._blocker
        blocked = answered - self._sent_at >= _TOLERANCE
        self._report(answered)
        blocker, self._blocker = self._blocker, None
        seconds = answered - self._counted_to
        self.free_at = self._counted_to = answered
        self._sent_at, self._answered_at = clock, None
        try:
            self._loop.call_soon_threadsafe(self._answer)
        except RuntimeError:
            self._answered_at = clock  # the loop is closed
        return (seconds, blocker) if blocked else (0.0, None)

    def _report(self, until: float) -> None:
        if self._blocker is not None:
            seconds = until - max(self.free_at, getattr(self._blocker, "started_at", None) or 0.0)
            if seconds >= _LONG:
                self.on_block(self._blocker, seconds)

    def _answer(self) -> None:
        self._answered_at = monotonic()


def occupant(thread: int | None) -> Link | None:
    """Return the attempt whose code (handler, subtask or callback) the event loop of a thread runs at this moment."""
    frame = innermost = sys._current_frames().get(thread or 0)
    while frame is not None and frame.f_code is not _RUN_CODE:
        frame = frame.f_back
    if frame is None:
        return _handler_of(innermost)  # it waits for events, or is not asyncio's own loop
    # Everything that a handler starts on the loop runs in a copy of the handler's context, which holds the attempt.
    context = getattr(frame.f_locals.get("self"), "_context", None)
    return None if context is None else context.get(current)


def _handler_of(frame: FrameType | None) -> Link | None:
    """Return the attempt whose handler this frame belongs to; for loops like uvloop, whose callbacks have no frame.

    Code that such a loop runs in a subtask or a callback of a handler is not found.
    """
    while frame is not None and frame.f_code is not LoopRunner._work.__code__:
        frame = frame.f_back
    return None if frame is None else frame.f_locals.get("attempt")
