"""Estimates the server's clock without a round trip, from its last answer and the monotonic time since."""

import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta

from onerow.stores.postgres.fast.binary import EPOCH

REFRESH_AFTER = 10.0
"""Seconds after which the server is asked again, unless another statement returned its time."""


class ServerClock:
    """An estimate that lags by at most the travel time of an answer: a task due by this clock is due on the server.

    Each answer gives a lower and an upper bound for the offset to our monotonic clock. The estimate is the
    highest lower bound so far, but never above the latest upper bound.
    """

    def __init__(self, ask: Callable[[], int], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._offset = float("-inf")  # the server's time minus our monotonic clock, in seconds
        self._observed_at = float("-inf")

    def now(self) -> datetime:
        if self._monotonic() - self._observed_at > REFRESH_AFTER:
            sent_at = self._monotonic()
            self.observe(self._ask(), sent_at)
        return EPOCH + timedelta(milliseconds=int((self._monotonic() + self._offset) * 1000))

    def observe(self, micros: int, sent_at: float) -> None:
        """Record an answer: the server's time in µs since 2000, and when the question was sent."""
        at = self._monotonic()
        with self._lock:
            self._offset = min(max(self._offset, micros / 1e6 - at), micros / 1e6 - sent_at)
            self._observed_at = at
