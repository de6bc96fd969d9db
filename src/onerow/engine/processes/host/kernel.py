"""Kernel features for the host process: subreaping, process names, death signals, notice of a process's end."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_SET_PDEATHSIG, _SET_NAME, _SET_CHILD_SUBREAPER = 1, 15, 36

# Sent to whole process groups by terminals and service managers. The worker decides when its
# children end, so the host process and the reapers ignore these signals and exit when the worker does.
_FOR_THE_WORKER = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)

# Ignored signals are inherited through exec. All signals are listed, although few are ever ignored,
# because posix_spawn makes a system call for every signal that is not listed.
RESET_IN_CHILD = tuple(sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}))


def _no_prctl(*_: object) -> int:
    return -1


prctl: Callable[..., int] = ctypes.CDLL(None).prctl if sys.platform == "linux" else _no_prctl


def become_subreaper(name: bytes) -> bool:
    """Make this process inherit its orphaned descendants; return False if the system cannot."""
    prctl(_SET_NAME, name, 0, 0, 0)
    return prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that forked it ends (Linux)."""
    prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def settle_signals() -> None:
    """Ignore signals that are meant for the worker, and unblock those that a worker thread may have blocked."""
    for number in _FOR_THE_WORKER:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def wake_on_child_end() -> int:
    """Return a descriptor that becomes readable when a child of this process ends."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    inherited = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    if inherited != -1:
        os.close(inherited)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reading


def drain(reading: int) -> None:
    """Empty a descriptor of `wake_on_child_end`; bytes left over cause one more harmless wake-up."""
    os.read(reading, 4096)


def watch(pid: int) -> int | None:
    """Return a descriptor that becomes readable when a process ends; None if the system cannot.

    End of file on a socket is not enough: a process that user code forked from the worker holds a copy of it.
    """
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None
