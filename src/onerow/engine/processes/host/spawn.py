"""Start a child from a request: an argument list, never a shell, in its own process group.

The session is that of the host process, which has no terminal. One session per child would cost more, and the
kernel's autogroups would then give every child the same weight, whatever its niceness.
"""

import os
import signal
from collections.abc import Collection
from errno import ENOENT

from .frames import Message

# Ignored signals are inherited through exec. All signals are listed, although few are ever ignored,
# because posix_spawn makes a system call for every signal that is not listed.
_RESET = tuple(sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}))
# The standard input of the host process and of every reaper.
_DEV_NULL = 0


class Refused(Exception):
    """The child could not be started: at which step, and with which errno."""

    def __init__(self, step: str, errno: int) -> None:
        self.step = step
        self.errno = errno


def spawn(request: Message) -> int:
    """Start the child and return its pid when its program runs; raise Refused."""
    given = dict(zip(request["targets"], request["fds"], strict=True))
    fd_of = {**dict.fromkeys((0, 1, 2), _DEV_NULL), **given}
    argv = request["argv"].split(b"\0")
    env = dict(zip(request["variables"].split(b"\0"), request["values"].split(b"\0"), strict=True))
    spares: list[int] = []
    step = "cwd"
    try:
        # The folder is set in the reaper, because posix_spawn cannot set it in the child;
        # a reaper has one child at a time and does not use it itself.
        os.chdir(request["cwd"])
        step = "search"
        program = _find(argv[0], env.get(b"PATH", os.defpath.encode()))
        step = "descriptors"
        moves = [(_clear_of(fd_of, fd, spares), target) for target, fd in fd_of.items()]
        step = "program"
        # posix_spawn shares the reaper's memory until the exec: three times as fast as a fork.
        actions = [(os.POSIX_SPAWN_DUP2, fd, target) for fd, target in moves]
        return os.posix_spawn(
            program, argv, env, file_actions=actions, setpgroup=0, setsigmask=(), setsigdef=_RESET
        )  # fmt: skip
    except OSError as error:
        raise Refused(step, error.errno or 0) from None
    finally:
        for fd in spares:
            os.close(fd)
        os.chdir("/")


def _find(program: bytes, path: bytes) -> bytes:
    """Return the program's file, looked up in the child's own PATH like execvp does."""
    if b"/" in program:
        return program
    for folder in path.split(b":"):
        candidate = os.path.join(folder or b".", program)
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    raise FileNotFoundError(ENOENT, "not on the PATH")


def _clear_of(taken: Collection[int], fd: int, spares: list[int]) -> int:
    """Return a descriptor for the same file whose number is not in `taken`; add those that were opened to `spares`."""
    while fd in taken:
        fd = os.dup(fd)
        spares.append(fd)
    return fd
