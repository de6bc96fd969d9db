"""How a child ended, and why one could not begin."""

import os
import signal
from collections.abc import Sequence
from errno import E2BIG, EACCES, EAGAIN, ENOENT, ENOEXEC

import msgspec


class Exit(msgspec.Struct, frozen=True):
    """The end of a child and of everything it started."""

    code: int | None
    """What it returned; None if a signal ended it."""
    signal: int | None
    """The signal that ended it; KILL also when its end was not seen."""
    stopped: bool
    """Whether we had asked for it, or its deadline had passed."""
    max_rss: int = 0
    """The most memory, in bytes, that it or one of its own waited-for children held."""
    left: int = 0
    """Processes that run as another user and could not be ended; else 0."""
    seen: bool = True
    """False when the processes that watch it were killed, and it was ended because of that."""

    @classmethod
    def of(cls, status: int | None, *, stopped: bool, max_rss: int = 0, left: int = 0) -> "Exit":
        """From a wait status; None means that the end was not seen."""
        code = None if status is None else os.waitstatus_to_exitcode(status)
        if code is None or code < 0:
            return cls(None, -code if code else 9, stopped, max_rss, left, status is not None)
        return cls(code, None, stopped, max_rss, left)


def signal_name(number: int) -> str:
    """A signal as people know it; of a real-time signal its number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class CannotStart(Exception):
    """A child that did not begin: the program, the reason, and the errno if the system gave one."""

    def __init__(self, program: str, reason: str, errno: int | None = None) -> None:
        self.program = program
        self.reason = reason
        self.errno = errno
        super().__init__(f"Cannot start {program!r}: {reason}.")

    def __reduce__(self) -> tuple[type["CannotStart"], tuple[str, str, int | None]]:
        return type(self), (self.program, self.reason, self.errno)


def refusal(argv: Sequence[str], cwd: str, step: str, errno: int) -> CannotStart:
    """The exception for a refused start, with what to do next."""
    why = os.strerror(errno).lower()
    reason = _REASONS.get((step, errno)) or _REASONS.get((step, 0), _OTHER)
    return CannotStart(argv[0], reason.format(why=why, cwd=cwd, step=step), errno)


_OTHER = "its {step} setting was refused ({why}); change or drop it"
_REASONS = {
    ("search", ENOENT): "there is no such program on the PATH; install it or give its full path",
    ("program", ENOENT): "{why}; give the path of a program, or of a script whose first line names one",
    ("program", EACCES): "{why}; it must be an executable file",
    ("program", ENOEXEC): "{why}; it is neither a program nor a script whose first line names one",
    ("program", E2BIG): "{why}; pass large values in a file or on its standard input",
    ("program", EAGAIN): "{why}; the limit of processes is reached",
    ("program", 0): "{why}",
    ("cwd", 0): "its folder {cwd!r} cannot be entered ({why}); create it or give another",
    ("descriptors", 0): "a passed descriptor could not be put in place ({why})",
}
