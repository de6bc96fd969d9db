"""An estimate of the server's clock, without a round trip per call.

The server is asked from time to time; in between the local monotonic clock is added, so jumps of the local wall clock
have no effect. An answer is already old when it arrives, so it is a lower bound of the server's time; the highest of
several bounds is off by at most the fastest response time. The estimate is never ahead of the server: no task starts
before it is due, and no live lease counts as expired.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from onerow.core.errors import StoreError

Stamp = str | dict[str, datetime]
"""The time of a write as an aggregation expression: the server's clock, or a test's."""
SERVER_NOW: Stamp = "$$NOW"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LATER = 8, 2  # requests in the first measurement, and in later ones
_GOOD_FOR = 5.0
_REMEMBERED = 24  # bounds of about a minute, because clocks drift
_TICK = 0.001  # the server truncates its answer to the millisecond


class ServerClock:
    """Estimates the server's time. `ask` queries the server; only the first call waits for it."""

    def __init__(self, ask: Callable[[], datetime]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._floors: deque[float] = deque(maxlen=_REMEMBERED)  # lower bounds of server time minus monotonic time
        self._floor: float | None = None
        self._good_until = 0.0

    def __call__(self) -> datetime:
        floor = self._floor
        if floor is None:
            floor = self.measure()
        elif time.monotonic() > self._good_until:
            # In another thread, so that an unavailable server does not block the caller.
            self._good_until = time.monotonic() + _GOOD_FOR
            threading.Thread(target=self._try_to_measure, name="onerow-mongo-clock", daemon=True).start()
        return _EPOCH + timedelta(seconds=floor + time.monotonic())

    def measure(self) -> float:
        """Ask the server now; return the lower bound of its time minus the monotonic clock."""
        with self._lock:
            for _ in range(_FIRST if self._floor is None else _LATER):
                self._sample()
            self._floor = max(self._floors)
            self._good_until = time.monotonic() + _GOOD_FOR
            return self._floor

    def _try_to_measure(self) -> None:
        with contextlib.suppress(StoreError):  # keep the last estimate
            self.measure()

    def _sample(self) -> None:
        sent = time.monotonic()
        server_time = (self._ask() - _EPOCH).total_seconds()
        received = time.monotonic()
        ceiling = server_time + _TICK - sent
        if self._floors and max(self._floors) > ceiling:
            self._floors.clear()  # the server's clock was set back
        self._floors.append(server_time - received)
