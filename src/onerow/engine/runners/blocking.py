"""Measure how long the event loop of `async def` handlers is blocked, and find the attempt whose code blocks it."""

import asyncio
import sys
from asyncio.events import Handle
from collections.abc import Callable
from time import monotonic

from onerow.engine.handler.context import Link, current

_TOLERANCE = 0.05
"""Seconds that a callback may wait on a loop that is busy but not blocked."""
_RUN_CODE = Handle._run.__code__


class LoopWatch:
    """Send callbacks to the loop and measure how long they wait; `look` is called from one other thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: Callable[[], int | None]) -> None:
        self._loop = loop
        self._thread = thread
        self._sent_at = self._counted_to = self.free_at = monotonic()
        self._answered_at: float | None = self._sent_at  # None while the callback waits
        self._blocker: Link | None = None

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
            self._blocker = occupant(self._thread())
            seconds, self._counted_to = clock - self._counted_to, clock
            return seconds, self._blocker
        blocked = answered - self._sent_at >= _TOLERANCE
        blocker, self._blocker = self._blocker, None
        seconds = answered - self._counted_to
        self.free_at = self._counted_to = answered
        self._sent_at, self._answered_at = clock, None
        try:
            self._loop.call_soon_threadsafe(self._answer)
        except RuntimeError:
            self._answered_at = clock  # the loop is closed
        return (seconds, blocker) if blocked else (0.0, None)

    def _answer(self) -> None:
        self._answered_at = monotonic()


def occupant(thread: int | None) -> Link | None:
    """Return the attempt whose code (handler, subtask or callback) the event loop of a thread runs at this moment."""
    frame = sys._current_frames().get(thread or 0)
    while frame is not None and frame.f_code is not _RUN_CODE:
        frame = frame.f_back
    if frame is None:
        return None  # it waits for events, or is not asyncio's own loop
    # Everything that a handler starts on the loop runs in a copy of the handler's context, which holds the attempt.
    context = getattr(frame.f_locals.get("self"), "_context", None)
    return None if context is None else context.get(current)
