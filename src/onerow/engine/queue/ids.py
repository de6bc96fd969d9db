"""Task ids: UUIDs that sort by the time they were made, and ids that follow from others."""

import os
import threading
from datetime import datetime
from uuid import NAMESPACE_OID, uuid5

from onerow.core.times import since_epoch

_COUNTER = tuple(f"{count:03x}" for count in range(1 << 12))
_lock = threading.Lock()
_last = 0


def new_ids(now: datetime, count: int) -> list[str]:
    """Time-ordered UUIDs (version 7); those of one process also sort in the order they were made."""
    global _last
    noise = os.urandom(8 * count).hex()  # 60 bits for each, and a digit to spare
    with _lock:
        # 12 bits of counter below the milliseconds keep a batch in order.
        start = max(since_epoch(now) << 12, _last + 1)
        _last = start + count - 1
    out = []
    for index in range(count):
        stamp = start + index
        if index == 0 or not stamp & 0xFFF:
            millis = f"{stamp >> 12:012x}"
            head = f"{millis[:8]}-{millis[8:]}-7"
        place = 16 * index
        out.append(f"{head}{_COUNTER[stamp & 0xFFF]}-8{noise[place : place + 3]}-{noise[place + 4 : place + 16]}")
    return out


def child_id(parent_id: str, phase: str, generation: int, key: str) -> str:
    """The id of a child: the same spawn always names the same task."""
    return str(uuid5(NAMESPACE_OID, f"{parent_id}\n{phase}\n{generation}\n{key}"))
