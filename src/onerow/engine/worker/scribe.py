"""The scribe keeps output lines in the store, in batches, so that a talkative task slows nothing else down."""

from datetime import datetime

from onerow.engine.worker.hands import Hands
from onerow.ports import LogLine, Store

_BATCH = 2_000
_MOST = 50_000


class Scribe:
    """Writes what Hands.log collected."""

    def __init__(self, store: Store, hands: Hands) -> None:
        self._store = store
        self._hands = hands
        self._kept: list[LogLine] = []

    def tick(self, now: datetime) -> float:
        """One round; seconds to rest."""
        lines = self._hands.lines
        while lines and len(self._kept) < _BATCH:
            self._kept.append(lines.popleft())
        # The store may be away for long: then the oldest lines go, rather than our memory.
        while len(lines) > _MOST:
            lines.popleft()
        if not self._kept:
            return 1.0
        self._store.append_log(self._kept)
        self._kept = []
        return 0.0 if lines else 0.05
