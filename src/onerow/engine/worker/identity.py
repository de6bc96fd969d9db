"""Who a worker process is: a name that is never used again, and proof by which its host can tell that it died."""

import os
import socket
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import msgspec


class Identity(msgspec.Struct, frozen=True):
    """One process start."""

    name: str
    host: str
    boot: str
    namespace: str
    pid: int
    born: str
    started_at: datetime

    @classmethod
    def of_this_process(cls) -> Self:
        host = socket.gethostname() or "host"
        pid = os.getpid()
        return cls(
            name=f"{host[:40]}-{pid}-{uuid4().hex[:8]}",
            host=host,
            boot=_boot(),
            namespace=_namespace(),
            pid=pid,
            born=_born(pid) or "",
            started_at=datetime.now(UTC),
        )

    def knows_dead(self, other: dict[str, Any]) -> bool:
        """Whether another worker, by its line of the roll, certainly runs no more.

        Only for this very boot and pid namespace: two containers may share a host name and not their pids.
        """
        if not self.boot or other.get("boot") != self.boot or other.get("namespace") != self.namespace:
            return False
        return _born(int(other["pid"])) != other.get("born")


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _born(pid: int) -> str | None:
    """When a process started, in clock ticks since boot; None when there is none, or only its corpse."""
    if sys.platform != "linux":
        return None
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else fields[19]
