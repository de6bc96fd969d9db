"""What the kernel lends a keeper: subreaping, names, death signals, word of a process's end."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_SET_PDEATHSIG, _SET_NAME, _SET_CHILD_SUBREAPER = 1, 15, 36

# Sent to whole process groups by terminals and service managers. The worker decides when its
# children end, so keeper and wardens let these pass and leave when the worker does.
_NOT_FOR_US = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)

# Ignored signals are inherited through exec. All of them are named, although few are ever ignored,
# because posix_spawn looks up every signal that it is not told about.
RESET_IN_CHILD = tuple(sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}))


def _no_prctl(*_: object) -> int:
    return -1


prctl: Callable[..., int] = ctypes.CDLL(None).prctl if sys.platform == "linux" else _no_prctl


def become_subreaper(name: bytes) -> bool:
    """Inherit the orphans among our descendants from now on; False where the system cannot."""
    prctl(_SET_NAME, name, 0, 0, 0)
    return prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def die_with_parent() -> None:
    """Be killed when the thread that forked us ends (Linux)."""
    prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def settle_signals() -> None:
    """Ignore what is not for us, and undo what a thread of the worker may have blocked."""
    for number in _NOT_FOR_US:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def wake_on_child_end() -> int:
    """A descriptor that becomes readable when a child of ours ends."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    inherited = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    if inherited != -1:
        os.close(inherited)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reading


def drain(reading: int) -> None:
    """Empty a descriptor of `wake_on_child_end`; what is left wakes us once more, which does no harm."""
    os.read(reading, 4096)


def watch(pid: int) -> int | None:
    """A descriptor that becomes readable when a process ends; None where the system cannot.

    The end of a socket is not enough: a process that user code forked off the worker holds a copy.
    """
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None
