"""Metrics that are read at most once a second."""

import threading
from time import monotonic

from onerow.telemetry.prometheus import StoreMetrics

_KEPT_FOR = 1.0  # seconds; several scrapers cost the store as much as one


class CachedMetrics:
    """The metrics of a store, read at most once a second."""

    def __init__(self, metrics: StoreMetrics) -> None:
        self._metrics = metrics
        self._lock = threading.Lock()
        self._text, self._until = b"", 0.0

    def text(self) -> bytes:
        with self._lock:
            if monotonic() >= self._until:
                self._text = self._metrics.text()
                self._until = monotonic() + _KEPT_FOR
            return self._text
