"""The server's clock, read without a round trip: what it last said, and how long ago that was."""

import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta

from onerow.stores.postgres.fast.binary import EPOCH

REFRESH_AFTER = 10.0
"""Seconds after which the server is asked again, unless its answers to something else told meanwhile."""


class ServerClock:
    """Errs to the past by as long as an answer travels: a task that is due now by this clock is due for the server.

    Each answer says between which bounds the difference to our own monotonic clock lies. The estimate stays within the
    latest bounds and as low as the best answer allows.
    """

    def __init__(self, ask: Callable[[], int], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._ahead = float("-inf")  # the server's seconds less our monotonic clock's
        self._heard_at = float("-inf")

    def now(self) -> datetime:
        if self._monotonic() - self._heard_at > REFRESH_AFTER:
            sent_at = self._monotonic()
            self.heard(self._ask(), sent_at)
        return EPOCH + timedelta(milliseconds=int((self._monotonic() + self._ahead) * 1000))

    def heard(self, said: int, sent_at: float) -> None:
        """The server said what time it is (µs since 2000), in answer to what we sent then."""
        at = self._monotonic()
        with self._lock:
            self._ahead = min(max(self._ahead, said / 1e6 - at), said / 1e6 - sent_at)
            self._heard_at = at
