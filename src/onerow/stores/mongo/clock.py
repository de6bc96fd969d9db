"""The server's clock, without asking it each time.

Asked now and then; in between our own monotonic clock counts on, so that a jump of this machine's clock moves nothing.
An answer was true before it arrived, so it puts a floor under the server's time; the highest floor of several answers
is within the fastest way back. What we say never runs ahead of the server: nothing starts before it is due, and no
lease is taken for dead that still lives.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from onerow.core.errors import StoreError

Stamp = str | dict[str, datetime]
"""The time of a write, as an expression in it: the server's own, or a test's."""
SERVER_NOW: Stamp = "$$NOW"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LATER = 8, 2  # how often the server is asked when nothing is known yet, and from time to time
_GOOD_FOR = 5.0
_REMEMBERED = 24  # floors of about a minute: clocks drift
_TICK = 0.001  # the server's answer is cut to the millisecond


class ServerClock:
    """`ask` gives the server's time by a round trip; only the first call waits for one."""

    def __init__(self, ask: Callable[[], datetime]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._floors: deque[float] = deque(maxlen=_REMEMBERED)  # the server's time less our monotonic clock's
        self._floor: float | None = None
        self._good_until = 0.0

    def __call__(self) -> datetime:
        floor = self._floor
        if floor is None:
            floor = self.measure()
        elif time.monotonic() > self._good_until:
            # Beside whoever asks for the time: a server that is away must not hold them up.
            self._good_until = time.monotonic() + _GOOD_FOR
            threading.Thread(target=self._try_to_measure, name="onerow-mongo-clock", daemon=True).start()
        return _EPOCH + timedelta(seconds=floor + time.monotonic())

    def measure(self) -> float:
        """Ask the server now; by how much its time is ahead of our monotonic clock, at the least."""
        with self._lock:
            for _ in range(_FIRST if self._floor is None else _LATER):
                self._sample()
            self._floor = max(self._floors)
            self._good_until = time.monotonic() + _GOOD_FOR
            return self._floor

    def _try_to_measure(self) -> None:
        with contextlib.suppress(StoreError):  # away for now: our own clock goes on counting
            self.measure()

    def _sample(self) -> None:
        sent = time.monotonic()
        told = (self._ask() - _EPOCH).total_seconds()
        came = time.monotonic()
        ceiling = told + _TICK - sent
        if self._floors and max(self._floors) > ceiling:
            self._floors.clear()  # someone set the server's clock back
        self._floors.append(told - came)
