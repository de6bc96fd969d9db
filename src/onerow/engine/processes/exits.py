"""How a child process ended, and why one could not be started."""

import os
import signal
from collections.abc import Sequence
from errno import E2BIG, EACCES, EAGAIN, ENOENT, ENOEXEC

import msgspec


class Exit(msgspec.Struct, frozen=True):
    """The end of a child and of everything it started."""

    code: int | None
    """The exit code; None if a signal ended it."""
    signal: int | None
    """The signal that ended it; KILL also if its end was not observed."""
    stopped: bool
    """Whether the worker had requested the stop, or the deadline had passed."""
    max_rss: int = 0
    """The largest memory, in bytes, of the child or of one of its own waited-for children."""
    left: int = 0
    """The number of processes of another user that could not be ended."""
    seen: bool = True
    """False if its end was not observed, because its process host and reaper were killed."""

    @classmethod
    def of(cls, status: int | None, *, stopped: bool, max_rss: int = 0, left: int = 0) -> "Exit":
        """Return the exit for a wait status; None means that the end was not observed."""
        code = None if status is None else os.waitstatus_to_exitcode(status)
        if code is None or code < 0:
            return cls(None, -code if code else 9, stopped, max_rss, left, status is not None)
        return cls(code, None, stopped, max_rss, left)


def signal_name(number: int) -> str:
    """Return the name of a signal, or the number of a real-time signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class CannotStart(Exception):
    """A child could not be started: the program, the reason, and the errno if the system gave one."""

    def __init__(self, program: str, reason: str, errno: int | None = None) -> None:
        self.program = program
        self.reason = reason
        self.errno = errno
        super().__init__(f"Cannot start {program!r}: {reason}.")

    def __reduce__(self) -> tuple[type["CannotStart"], tuple[str, str, int | None]]:
        return type(self), (self.program, self.reason, self.errno)


def refusal(argv: Sequence[str], cwd: str, step: str, errno: int) -> CannotStart:
    """Return the exception for a refused start, with what to do next."""
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
