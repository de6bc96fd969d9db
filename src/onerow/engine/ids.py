"""Task ids: UUIDs that sort by the time they were made, and ids that follow from others."""

import os
import threading
from datetime import datetime
from uuid import NAMESPACE_OID, uuid5

from onerow.core.times import since_epoch

_lock = threading.Lock()
_last = 0


def new_ids(now: datetime, count: int) -> list[str]:
    """Time-ordered UUIDs (version 7); those of one process also sort in the order they were made."""
    global _last
    noise = os.urandom(8 * count)
    with _lock:
        # 12 bits of counter below the milliseconds keep a batch in order.
        start = max(since_epoch(now) << 12, _last + 1)
        _last = start + count - 1
    out = []
    for index in range(count):
        stamp = start + index
        tail = int.from_bytes(noise[8 * index : 8 * index + 8]) & 0x3FFFFFFFFFFFFFFF | 0x8000000000000000
        text = f"{stamp >> 12:012x}7{stamp & 0xFFF:03x}{tail:016x}"
        out.append(f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}")
    return out


def child_id(parent_id: str, phase: str, generation: int, key: str) -> str:
    """The id of a child: the same spawn always names the same task."""
    return str(uuid5(NAMESPACE_OID, f"{parent_id}\n{phase}\n{generation}\n{key}"))
