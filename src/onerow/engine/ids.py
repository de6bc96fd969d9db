"""Task ids: UUIDs that sort by the time they were made, and ids that follow from others."""

import os
import struct
import threading
from datetime import datetime
from uuid import NAMESPACE_OID, uuid5

from onerow.core.times import since_epoch

_TAIL = struct.Struct(">Q")
_NODE = 0xFFFFFFFFFFFF
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
    for index, (tail,) in enumerate(_TAIL.iter_unpack(noise)):
        stamp = start + index
        high = stamp >> 12
        variant = tail >> 48 & 0x3FFF | 0x8000
        out.append(f"{high >> 16:08x}-{high & 65535:04x}-7{stamp & 4095:03x}-{variant:04x}-{tail & _NODE:012x}")
    return out


def child_id(parent_id: str, phase: str, generation: int, key: str) -> str:
    """The id of a child: the same spawn always names the same task."""
    return str(uuid5(NAMESPACE_OID, f"{parent_id}\n{phase}\n{generation}\n{key}"))
