"""Children of workers that died together with keeper and wardens, found by the mark they inherited.

Nobody was left to end them, so the next keeper on the host does. The environment is a weak witness
(a process may clear it, `at` copies it), so a stray must also have lost its parents to one of our own
ancestors, as orphans do.
"""

import os
import signal
import time
from contextlib import suppress

from .tree import stat

MARK = "ONEROW_CHILD"
_MOST_LOOKS = 100


def mark(worker: int) -> str:
    """The start of a mark: it names the worker beyond doubt, across hosts, containers and pid reuse."""
    return f"{_place()}-{worker}-{_started(worker)}-"


def end_strays() -> None:
    """Kill every orphan that bears the mark of a worker of this place that no longer lives."""
    place = _place()
    if not place:
        return
    parents = {pid: _parent(pid) for pid in _pids() if _is_stray(_mark_of(pid), place)}
    heirs = _ancestors()
    for pid in parents:
        top = pid
        while parents[top] in parents:
            top = parents[top]
        if parents[top] in heirs:
            _kill(pid)


def end_marked(whole_mark: str) -> None:
    """Kill every process that bears exactly this mark, until there is none or they seem not to care."""
    for _ in range(_MOST_LOOKS):
        # The dead have no environment, so only the living are found.
        found = [pid for pid in _pids() if _mark_of(pid) == whole_mark]
        if not found:
            return
        for pid in found:
            _kill(pid)
        time.sleep(0.005)


def _is_stray(found: str, place: str) -> bool:
    where, _, rest = found.partition("-")
    worker, _, rest = rest.partition("-")
    return where == place and worker.isdigit() and _started(int(worker)) != rest.partition("-")[0]


def _mark_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            for pair in file.read().split(b"\0"):
                if pair.startswith(MARK.encode() + b"="):
                    return pair.partition(b"=")[2].decode("latin-1")
    except OSError:
        pass  # it ended, or is another user's
    return ""


def _place() -> str:
    """Boot and pid namespace: a pid means nothing outside of them. Empty where there is no /proc."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip().replace("-", "")
        return boot + "." + os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        return ""


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except FileNotFoundError:
        return []


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
    """When a process began, in ticks since boot; empty if there is none."""
    fields = stat(pid)
    return fields[19].decode() if fields else ""


def _kill(pid: int) -> None:
    with suppress(OSError):
        os.kill(pid, signal.SIGKILL)
