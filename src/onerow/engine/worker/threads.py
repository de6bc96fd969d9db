"""Threads that run roles: a role has tick(now) and owns no thread."""

import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from time import monotonic
from typing import Protocol

from onerow.core.errors import RowRefused, StoreError, StoreMoved, with_fix
from onerow.core.failure import text_of
from onerow.engine.events.events import Events, RoleFailed, StoreBack, StoreUnreachable


class Role(Protocol):
    """A periodic part of the worker."""

    def tick(self, now: datetime) -> float:
        """Do one round; return the seconds until the next."""


class Outage:
    """Whether the store is unavailable; sends one event when an outage begins and one when it ends, for all threads."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._lock = threading.Lock()
        self.active = False
        self._moved = False
        self.moved: Callable[[StoreMoved], None] = lambda error: None  # called once; a retry would not help
        self.examine: Callable[[BaseException], object] = lambda error: None  # called with every error of a role too

    def begin(self, error: Exception) -> None:
        self.examine(error)
        with self._lock:
            if isinstance(error, StoreMoved):
                first, self._moved = not self._moved, True
            else:
                first, self.active = not self.active, True
        if first and isinstance(error, StoreMoved):
            self.moved(error)
        elif first:
            self._events.send(StoreUnreachable(with_fix(error)))

    def end(self) -> None:
        with self._lock:
            last, self.active = self.active, False
        if last:
            self._events.send(StoreBack())


class RoleThread:
    """Run roles in one thread, each when it is due; report errors and pause the failed role."""

    def __init__(
        self,
        name: str,
        roles: Sequence[Role],
        now: Callable[[], datetime],
        events: Events,
        outage: Outage,
        last: Callable[[datetime], object] | None = None,
    ) -> None:
        self._last = last  # called once in the thread, after a stop
        self._roles = list(roles)
        self._now = now
        self._events = events
        self._outage = outage
        self._wake = threading.Event()
        self._called: deque[Role] = deque()  # roles to call now
        self._stop = False
        self._pause = {id(role): 0.05 for role in roles}
        self._thread = threading.Thread(target=self._main, name=f"onerow-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self, role: Role) -> None:
        """Call a role now."""
        self._called.append(role)
        self._wake.set()

    def ask_to_stop(self) -> None:
        """Stop after the current round; do not wait."""
        self._stop = True
        self._wake.set()

    def stop(self, timeout: float = 5.0) -> bool:
        """Stop after the current round; return whether the thread ended in time."""
        self.ask_to_stop()
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _main(self) -> None:
        due = {id(role): 0.0 for role in self._roles}
        while not self._stop:
            clock = monotonic()
            self._wake.clear()
            called = {id(self._called.popleft()) for _ in range(len(self._called))}
            for role in self._roles:
                if (id(role) in called or due[id(role)] <= clock) and not self._stop:
                    due[id(role)] = monotonic() + self._tick(role)
            rest = min(due.values()) - monotonic()
            if rest > 0:
                self._wake.wait(rest)
        if self._last is not None:
            try:
                self._last(self._now())
            except (Exception, SystemExit) as error:
                self._report(self._roles[0], error)

    def _report(self, role: Role, error: BaseException) -> None:
        if isinstance(error, StoreError) and not isinstance(error, RowRefused):
            self._outage.begin(error)
        else:
            self._outage.examine(error)
            self._events.send(RoleFailed(type(role).__name__, text_of(error), traceback.format_exc()))

    def _tick(self, role: Role) -> float:
        try:
            rest = role.tick(self._now())
        except (Exception, SystemExit) as error:  # an exit would only end this thread
            self._report(role, error)
            pause = self._pause[id(role)]
            self._pause[id(role)] = min(pause * 2, 2.0)
            return pause
        self._pause[id(role)] = 0.05
        return rest
