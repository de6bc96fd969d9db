"""Calls of hooks and alert receivers: each has a time limit, and none can delay the worker."""

import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any, Self

import msgspec

MOST_QUEUED = 10_000
"""Maximum number of events queued for one hook; further ones are dropped and counted."""
_REPORT_EVERY = 10.0


class GuardState(msgspec.Struct, frozen=True, omit_defaults=True):
    """A hook or receiver that exceeds its time limit, or for which events were dropped."""

    name: str
    running_for: float = 0.0  # seconds since the current call started; 0: within its limit
    dropped: int = 0


class Guard:
    """The time limit of sequential calls in one thread; a context manager around each call."""

    def __init__(self, name: str, limit: float) -> None:
        self.name = name
        self.limit = limit
        self.overdue = False
        self.dropped = 0  # events that were not delivered
        self._began_at: float | None = None
        self._reported = 0
        self._report_at = 0.0

    def __enter__(self) -> Self:
        self._began_at = monotonic()
        return self

    def __exit__(self, *raised: object) -> None:
        self._began_at = None
        self.overdue = False

    @property
    def calling(self) -> bool:
        return self._began_at is not None

    def check(self, clock: float) -> bool:
        """Whether the current call exceeds the limit and no earlier check has reported it."""
        began_at = self._began_at
        if began_at is None or self.overdue or clock - began_at <= self.limit:
            return False
        self.overdue = True
        return True

    def newly_dropped(self, clock: float) -> int:
        """Number of dropped events not yet reported; 0 within ten seconds of the last report."""
        count = self.dropped - self._reported
        if count == 0 or clock < self._report_at:
            return 0
        self._report_at = clock + _REPORT_EVERY
        self._reported = self.dropped
        return count

    def state(self, clock: float) -> GuardState | None:
        """Return the state for `doctor`; None if there is no problem."""
        began_at = self._began_at
        running_for = clock - began_at if self.overdue and began_at is not None else 0.0
        return GuardState(self.name, round(running_for, 1), self.dropped) if running_for or self.dropped else None


class HookThread:
    """A hook with its own thread; after exceeding its limit it gets no further events until it returns."""

    def __init__(
        self,
        function: Callable[[Any], object],
        name: str,
        limit: float,
        key: object,
        raised: Callable[[Any, BaseException], None],
    ) -> None:
        self.key = key
        self.guard = Guard(name, limit)
        self._function = function
        self._raised = raised
        self._events: deque[Any] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False

    def call(self, event: Any) -> None:
        """Call the hook in this thread."""
        self._function(event)

    def put(self, event: Any) -> None:
        """Queue an event for the hook; never blocks."""
        with self._changed:
            if self.guard.overdue or len(self._events) >= MOST_QUEUED:
                self.guard.dropped += 1
                return
            self._events.append(event)
            self._closing = False
            if self._thread is None:
                self._thread = threading.Thread(target=self._main, name=f"onerow-hook-{self.guard.name}", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def check(self, clock: float) -> bool:
        """Like `Guard.check`; drop the queued events of an overdue hook."""
        with self._changed:
            found = self.guard.check(clock)
            if found:
                self._drop()
            return found

    def finish(self, deadline: float) -> None:
        """Wait until all events are delivered or the deadline has passed; drop the rest and end the thread."""
        with self._changed:
            while (self._events or self.guard.calling) and not self.guard.overdue:
                if (left := deadline - monotonic()) <= 0:
                    break
                self._changed.wait(left)
            self._drop()
            self._closing = True
            self._changed.notify_all()

    def _drop(self) -> None:
        self.guard.dropped += len(self._events)
        self._events.clear()

    def _main(self) -> None:
        while True:
            with self._changed:
                while not self._events:
                    if self._closing:
                        self._thread = None
                        return
                    self._changed.wait()
                event = self._events.popleft()
                self.guard.__enter__()
            try:
                self._function(event)
            except BaseException as error:
                self._raised(event, error)
            with self._changed:
                self.guard.__exit__()
                self._changed.notify_all()


def name_of(function: object) -> str:
    """Return the name of a hook as `module.name`."""
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    module = getattr(function, "__module__", None)
    return f"{module}.{name}" if isinstance(module, str) else str(name)
