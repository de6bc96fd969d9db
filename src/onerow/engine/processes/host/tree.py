"""Adopt, find, signal and end the descendants of this process."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Collection
from contextlib import suppress

_SET_PDEATHSIG, _SET_NAME, _SET_CHILD_SUBREAPER = 1, 15, 36

# Processes that fork faster than they are listed are caught after several passes; between two calls, the
# caller reaps ended processes.
_MOST_PASSES = 64

_HAS_CHILDREN_FILE = os.path.exists(f"/proc/self/task/{os.getpid()}/children")


def adopt_orphans(name: bytes) -> None:
    """Make this process the parent of its orphaned descendants, and name it."""
    _prctl(_SET_NAME, name)
    _prctl(_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends (Linux)."""
    _prctl(_SET_PDEATHSIG, signal.SIGKILL)


def signal_group(leader: int, number: int) -> None:
    """Signal a process group where orphans are not adopted and there is no /proc: all that can be done on macOS."""
    if sys.platform != "linux":
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, number)


def descendants(skip: Collection[int] = ()) -> set[int]:
    """Return every descendant of this process, zombies included, except `skip` and their descendants."""
    found: set[int] = set()
    _walk(found, skip, lambda pid: None)
    return found


def ask_to_end() -> None:
    """Send TERM to every descendant, and CONT, because a stopped process does not handle signals."""
    for pid in descendants():
        _signal(pid, signal.SIGTERM)
        _signal(pid, signal.SIGCONT)


def end(skip: Collection[int] = ()) -> tuple[set[int], set[int]]:
    """Send KILL to every descendant once; return those that were sent it, and those of another user.

    Each process is stopped before its children are listed, and all are stopped before they are killed: a stopped
    process cannot fork unnoticed.
    """
    refused: set[int] = set()

    def stop(pid: int) -> None:
        if not _signal(pid, signal.SIGSTOP):
            refused.add(pid)

    stopped: set[int] = set()
    for _ in range(_MOST_PASSES):
        if _walk(stopped, skip, stop):
            continue
        # One last pass over all: a stop may reach a process in the middle of a fork.
        missed = descendants(skip) - stopped if stopped else stopped
        if not missed:
            break
        for pid in missed:
            stop(pid)
        stopped |= missed
    # Listed again, because a pid seen earlier may have been reused by an unrelated process.
    there = descendants(skip) if stopped else stopped
    for pid in there - refused:
        _signal(pid, signal.SIGKILL)
    return there - refused, there & refused


def _walk(known: set[int], skip: Collection[int], meet: Callable[[int], None]) -> bool:
    """Call `meet` for every descendant not yet known, before its own children are listed; False if there was none."""
    children = _by_task if _HAS_CHILDREN_FILE else _ByStat()
    before = len(known)
    ahead = [os.getpid()]
    while ahead:
        for pid in children(ahead.pop()):
            if pid not in known and pid not in skip:
                known.add(pid)
                meet(pid)
                ahead.append(pid)
    return len(known) > before


def _signal(pid: int, number: int) -> bool:
    """Send a signal; return False if it is not permitted (another user's process); an ended process counts as done."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
    except PermissionError:
        return False
    return True


def _by_task(pid: int) -> list[int]:
    """Return the children of one process, which the kernel lists by the thread that forked them."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found += map(int, file.read().split())
    except OSError:
        pass  # it ended just now; its children are listed under their new parent
    return found


class _ByStat:
    """The same from the stat lines of all processes, for kernels without the `children` file."""

    def __init__(self) -> None:
        self._children: dict[int, list[int]] = {}
        for pid in pids():
            if fields := stat(pid):
                self._children.setdefault(int(fields[1]), []).append(pid)

    def __call__(self, pid: int) -> list[int]:
        return self._children.get(pid, [])


def pids() -> list[int]:
    """Return all visible processes; none without /proc."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()] if os.path.isdir("/proc") else []


def stat(pid: int) -> list[bytes]:
    """Return the fields of /proc/<pid>/stat from the state on; empty if the process does not exist."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name before them is in parentheses and may contain anything, including ')'.
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def _prctl(option: int, value: object) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
