"""Identity of a worker process: a unique name, and facts by which others on its host can prove that it died."""

import os
import socket
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import msgspec

from onerow.core.errors import BadInput

_ENDED = "ended"


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
        """Whether another worker, given its entry in the worker registry, is proven dead.

        Proof requires the same boot and pid namespace: two containers may share a host name but not their pids. A
        process that is not visible may still run: /proc may be hidden (hidepid), or the process may belong to another
        user. So the kernel must say that the pid does not exist, or the process with it must have another start time.
        """
        if not self.boot or other.get("boot") != self.boot:
            return False
        if not self.namespace or other.get("namespace") != self.namespace:
            return False
        pid, born = int(other.get("pid") or 0), other.get("born")
        if pid <= 0:
            return False
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass  # another user's process; only its start time shows whether the pid was reused
        seen = _born(pid)
        return seen is not None and (seen == _ENDED or (bool(born) and seen != born))


def check_platform() -> None:
    """Raise BadInput on a system without worker processes."""
    if sys.platform == "win32":
        raise BadInput(
            "workers do not run on Windows, only clients do",
            fix="run the worker in WSL 2, in a container or on another host",
            field="platform",
        )


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
    """Return a process's start time in clock ticks since boot; _ENDED for a zombie, None if it is not visible."""
    try:
        if os.readlink("/proc/self") != str(os.getpid()):
            return None  # mounted for another pid namespace, in which the pid is another process
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return _ENDED if fields[0] in ("Z", "X") else fields[19]
