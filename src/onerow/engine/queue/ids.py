"""Task ids: time-ordered UUIDs, and child ids derived from the parent's id."""

import os
import threading
from datetime import datetime
from uuid import NAMESPACE_OID, uuid5

from onerow.core.times import since_epoch

_COUNTER = tuple(f"{count:03x}" for count in range(1 << 12))
_lock = threading.Lock()
_last = 0


def new_ids(now: datetime, count: int) -> list[str]:
    """Return time-ordered UUIDs (version 7); those of one process also sort in creation order."""
    global _last
    noise = os.urandom(8 * count).hex()  # 64 random bits for each id, of which 60 are used
    with _lock:
        # A 12-bit counter below the milliseconds keeps the ids of a batch in order.
        start = max(since_epoch(now) << 12, _last + 1)
        _last = start + count - 1
    out = []
    for index in range(count):
        stamp = start + index
        if index == 0 or not stamp & 0xFFF:
            millis = f"{stamp >> 12:012x}"
            head = f"{millis[:8]}-{millis[8:]}-7"
        offset = 16 * index
        out.append(f"{head}{_COUNTER[stamp & 0xFFF]}-8{noise[offset : offset + 3]}-{noise[offset + 4 : offset + 16]}")
    return out


def child_id(parent_id: str, phase: str, generation: int, key: str) -> str:
    """Return the id of a child; repeating a spawn yields the same id."""
    return str(uuid5(NAMESPACE_OID, f"{parent_id}\n{phase}\n{generation}\n{key}"))
