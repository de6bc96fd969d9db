"""Memory of a process tree, watched in /proc.

Not RLIMIT_AS: interpreters and libraries (torch, the JVM, Go) reserve many times the address space that they use, and it
limits each process, not the tree. Not a cgroup: that needs privileges which few services have.
"""

import os
from collections.abc import Iterable

# The next look comes before a tree that fills memory at this rate (bytes a second) can exceed its limit, within bounds.
_FASTEST = 4_000_000_000
_SHORTEST, _LONGEST = 0.02, 0.5  # seconds

_EXACT = (b"Pss_Anon:", b"Pss_Shmem:")


def used(pids: Iterable[int], limit: int) -> int:
    """Return the bytes that these processes use; none without /proc.

    Resident sets are cheap to read, but count mapped files, and shared pages once per process. So only if they exceed the
    limit, anonymous and shared memory is read exactly, with each shared page counted once.
    """
    pids = list(pids)
    resident = sum(map(_resident, pids))
    return resident if resident <= limit else sum(map(_exact, pids))


def next_look(used: int, limit: int) -> float:
    """Return the seconds until the memory should be looked at again."""
    return min(max((limit - used) / _FASTEST, _SHORTEST), _LONGEST)


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0  # it ended just now


def _exact(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            found = [int(line.split()[1]) for line in file if line.startswith(_EXACT)]
    except OSError:
        found = []  # another user's process, or it ended just now
    return sum(found) * 1024 if found else _resident(pid)
