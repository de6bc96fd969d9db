"""Orphans: children of workers that died together with their host process and reapers, found by an inherited tag.

The next host process on the machine ends them. The tag, an environment variable, is weak evidence (a process may
clear it, `at` copies it), so the parent of an orphan must also be one of this process's own ancestors, which inherit
orphans.
"""

import os
import signal
import time
from contextlib import suppress

from .tree import pids, stat

TAG = "ONEROW_CHILD"
_MOST_LOOKS = 100


def tag_prefix(worker: int) -> str:
    """Return the prefix of a worker's tags: its pid namespace, pid and start time."""
    return f"{_namespace()}-{worker}-{_started(worker)}-"


def end_all() -> None:
    """Kill every orphan with the tag of a dead worker."""
    parents = {pid: _parent(pid) for pid in pids() if _is_of_dead_worker(_tag_of(pid))}
    heirs = _ancestors()
    for pid in parents:
        top = pid
        while parents[top] in parents:
            top = parents[top]
        if parents[top] in heirs:
            _kill(pid)


def end_tagged(tag: str) -> None:
    """Kill every process with exactly this tag, until there is none or the tries are used up."""
    for _ in range(_MOST_LOOKS):
        # Zombies have no environment, so only running processes are found.
        found = [pid for pid in pids() if _tag_of(pid) == tag]
        if not found:
            return
        for pid in found:
            _kill(pid)
        time.sleep(0.005)


def _is_of_dead_worker(tag: str) -> bool:
    namespace, worker, started, _ = tag.split("-") if tag.count("-") == 3 else [""] * 4
    # In another pid namespace, the pid is another process.
    return bool(namespace) and namespace == _namespace() and worker.isdigit() and _started(int(worker)) != started


def _tag_of(pid: int) -> str:
    # Suppressed: it ended, or belongs to another user.
    with suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        for variable in file.read().split(b"\0"):
            if variable.startswith(TAG.encode() + b"="):
                return variable.partition(b"=")[2].decode("latin-1")
    return ""


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        return ""


def _ancestors() -> set[int]:
    found: set[int] = set()
    pid = os.getppid()
    while pid and pid not in found:
        found.add(pid)
        pid = _parent(pid)
    return found


def _parent(pid: int) -> int:
    fields = stat(pid)
    return int(fields[1]) if fields else 0


def _started(pid: int) -> str:
    """Return when a process started, in clock ticks since boot; empty if it does not exist."""
    fields = stat(pid)
    return fields[19].decode() if fields else ""


def _kill(pid: int) -> None:
    with suppress(OSError):
        os.kill(pid, signal.SIGKILL)
