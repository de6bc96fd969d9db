"""The living descendants of this process: finding, signalling and ending them."""

import os
import signal
from collections.abc import Callable, Collection

# Processes that fork faster than we look are caught after some looks, not at the first; in between, the
# caller collects the dead.
_MOST_LOOKS = 64


def descendants(skip: Collection[int] = ()) -> set[int]:
    """Every descendant of this process, zombies included, without those under `skip`."""
    found: set[int] = set()
    _walk(found, skip, lambda pid: None)
    return found


def ask_to_end(skip: Collection[int] = ()) -> None:
    """TERM to every descendant, and CONT, because a stopped process would not hear it."""
    for pid in descendants(skip):
        _signal(pid, signal.SIGTERM)
        _signal(pid, signal.SIGCONT)


def end(skip: Collection[int] = ()) -> set[int] | None:
    """KILL every descendant, once; returns those who refuse if there are none but them, else None.

    They are stopped before they are killed, each before its children are listed: a stopped process
    cannot fork behind our back.
    """
    refused: set[int] = set()

    def stop(pid: int) -> None:
        if not _signal(pid, signal.SIGSTOP):
            refused.add(pid)

    stopped: set[int] = set()
    for _ in range(_MOST_LOOKS):
        if _walk(stopped, skip, stop):
            continue
        # One last look at everyone: a stop may reach a process in the middle of a fork.
        missed = descendants(skip) - stopped
        if not missed:
            break
        for pid in missed:
            stop(pid)
        stopped |= missed
    # Listed anew, because a number seen some time ago may be a stranger's by now.
    there = descendants(skip)
    for pid in there - refused:
        _signal(pid, signal.SIGKILL)
    return there if there and there <= refused else None


def _walk(known: set[int], skip: Collection[int], meet: Callable[[int], None]) -> bool:
    """Meet every descendant that is not known yet, before its own children; False if there was none."""
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
    """False if we may not signal it (it runs as another user); one that is gone counts as done."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
    except PermissionError:
        return False
    return True


def _by_task(pid: int) -> list[int]:
    """The children of one process, which the kernel lists by the thread that forked them."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found += map(int, file.read().split())
    except OSError:
        pass  # it ended while we looked; its children are listed elsewhere by now
    return found


class _ByStat:
    """The same from every process's stat line, for kernels without the `children` file."""

    def __init__(self) -> None:
        self._children: dict[int, list[int]] = {}
        for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
            if name.isdigit() and (fields := stat(int(name))):
                self._children.setdefault(int(fields[1]), []).append(int(name))

    def __call__(self, pid: int) -> list[int]:
        return self._children.get(pid, [])


def stat(pid: int) -> list[bytes]:
    """The fields of /proc/<pid>/stat from the state on; empty if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name before stands in parentheses and may contain anything, ')' included.
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


_HAS_CHILDREN_FILE = os.path.exists(f"/proc/self/task/{os.getpid()}/children")
