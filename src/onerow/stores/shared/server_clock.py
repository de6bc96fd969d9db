"""An estimate of the server's clock without a round trip per call.

In between answers the local monotonic clock is added, so jumps of the local wall clock have no effect. An answer is
already old when it arrives: it gives a lower bound of the server's time, and an upper bound by the time of the question.
The estimate is the highest lower bound, so it lags by at most the travel time of the fastest answer. It is not ahead of
the server: no task starts before it is due, and no live lease counts as expired.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from onerow.core.errors import StoreError

REFRESH_AFTER = 5.0
"""Seconds after which the server is asked again, unless another statement returned its time."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ServerClock:
    """Estimates the server's time. `ask` returns it in seconds since 1970; only the first call waits for the server.

    `tick` is the precision of the answers, in seconds; `samples` is the number of questions before the first estimate.
    """

    def __init__(
        self,
        ask: Callable[[], float],
        *,
        tick: float = 0.0,
        samples: int = 1,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._tick = tick
        self._samples = samples
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._offset: float | None = None  # the server's time minus our monotonic clock, in seconds
        self._fresh_until = 0.0

    def now(self) -> datetime:
        if self._offset is None:
            for _ in range(self._samples):
                self.measure()
        elif self._monotonic() > self._fresh_until:
            self._fresh_until = self._monotonic() + REFRESH_AFTER
            # In another thread, so that an unavailable server does not block the caller.
            with contextlib.suppress(RuntimeError):  # the interpreter is shutting down
                threading.Thread(target=self._try_to_measure, name="onerow-clock", daemon=True).start()
        assert self._offset is not None
        return _EPOCH + timedelta(milliseconds=int((self._monotonic() + self._offset) * 1000))

    def measure(self) -> None:
        """Ask the server now."""
        sent_at = self._monotonic()
        self.observe(self._ask(), sent_at)

    def observe(self, server_time: float, sent_at: float) -> None:
        """Record an answer, in seconds since 1970, and when the question was sent."""
        received_at = self._monotonic()
        lowest, highest = server_time - received_at, server_time + self._tick - sent_at
        with self._lock:
            if self._offset is None or self._offset > highest:  # the first answer, or the clock was set back
                self._offset = lowest
            else:
                self._offset = max(self._offset, lowest)
            self._fresh_until = received_at + REFRESH_AFTER

    def _try_to_measure(self) -> None:
        with contextlib.suppress(StoreError):  # keep the last estimate
            self.measure()
