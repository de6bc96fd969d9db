"""The server's clock, without asking it each time.

Asked now and then; in between our own monotonic clock counts on, so that a jump of this machine's clock moves nothing.
The server's answer is taken as of the moment it arrived, so that what we say never runs ahead of the server's clock:
nothing starts before it is due, and no lease is taken for dead that still lives.
"""

import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta

_GOOD_FOR = 10.0
_SAMPLES = 3
_RETRY_AFTER = 1.0
_JUMP = timedelta(seconds=1)


class ServerClock:
    """`ask` gives the server's time by a round trip."""

    def __init__(self, ask: Callable[[], datetime]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._known: tuple[datetime, float] | None = None  # the server's time at a moment of our monotonic clock
        self._good_until = 0.0
        self._last: datetime | None = None

    def __call__(self) -> datetime:
        known = self._known
        if known is None or time.monotonic() > self._good_until:
            known = self._measure()
        told, came = known
        now = told + timedelta(seconds=time.monotonic() - came)
        last = self._last
        # Two measures differ by a round trip; that must not make time go back. A set clock may.
        if last is not None and now < last < now + _JUMP:
            return last
        self._last = now
        return now

    def _measure(self) -> tuple[datetime, float]:
        with self._lock:
            known = self._known
            if known is not None and time.monotonic() <= self._good_until:
                return known
            try:
                known = self._known = min((self._sample() for _ in range(_SAMPLES)), key=lambda found: found[0])[1]
            except Exception:
                if known is None:
                    raise
                # Away for now: our own clock goes on counting, and whoever needs the server will notice.
                self._good_until = time.monotonic() + _RETRY_AFTER
                return known
            self._good_until = time.monotonic() + _GOOD_FOR
            return known

    def _sample(self) -> tuple[float, tuple[datetime, float]]:
        """(how long the answer took, what it was and when it came)."""
        sent = time.monotonic()
        told = self._ask()
        came = time.monotonic()
        return came - sent, (told, came)
