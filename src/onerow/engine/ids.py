"""Task ids: UUIDs that sort by the time they were made, and ids that follow from others."""

import os
import threading
from datetime import datetime
from uuid import NAMESPACE_OID, uuid5

from onerow.core.times import since_epoch

_VARIANT = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))
_lock = threading.Lock()
_last = 0


def new_ids(now: datetime, count: int) -> list[str]:
    """Time-ordered UUIDs (version 7); those of one process also sort in the order they were made."""
    global _last
    noise = os.urandom(8 * count).hex()
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
        tail = noise[16 * index : 16 * index + 16]
        out.append(f"{head}{stamp & 0xFFF:03x}-{_VARIANT[tail[0]]}{tail[1:4]}-{tail[4:]}")
    return out


def child_id(parent_id: str, phase: str, generation: int, key: str) -> str:
    """The id of a child: the same spawn always names the same task."""
    return str(uuid5(NAMESPACE_OID, f"{parent_id}\n{phase}\n{generation}\n{key}"))
