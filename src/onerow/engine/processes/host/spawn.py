"""Start a child from a request: an argument list, never a shell, in its own process group.

The session is that of the host process, which has no terminal. One session per child would cost more, and the
kernel's autogroups would then give every child the same weight, whatever its niceness.
"""

import os
import resource
import signal
import sys
from collections.abc import Callable, Collection
from errno import EINVAL, ENOENT

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
    umask = None if request["umask"] is None else os.umask(request["umask"])
    step = "cwd"
    try:
        # Folder and umask are set in the reaper, because posix_spawn cannot set them in the child;
        # a reaper has one child at a time and does not use them itself.
        os.chdir(request["cwd"])
        step = "search"
        program = _find(argv[0], env.get(b"PATH", os.defpath.encode()))
        step = "descriptors"
        moves = [(_clear_of(fd_of, fd, spares), target) for target, fd in fd_of.items()]
        step = "program"
        if request["nice"] or request["cpu_seconds"] is not None:
            return _by_fork(request, moves, lambda: os.execve(program, argv, env))
        # posix_spawn shares the reaper's memory until the exec, which makes a start three times as fast.
        actions = [(os.POSIX_SPAWN_DUP2, fd, target) for fd, target in moves]
        return os.posix_spawn(
            program, argv, env, file_actions=actions, setpgroup=0, setsigmask=(), setsigdef=_RESET
        )  # fmt: skip
    except OSError as error:
        raise Refused(step, error.errno or 0) from None
    finally:
        for fd in spares:
            os.close(fd)
        if umask is not None:
            os.umask(umask)
        os.chdir("/")


def _by_fork(request: Message, moves: list[tuple[int, int]], run_program: Callable[[], None]) -> int:
    """Start the child with a fork, for settings that only the child itself can make."""
    reading, writing = os.pipe()
    try:
        if (pid := os.fork()) == 0:
            # Out of the way of the descriptors of the child; it closes when the program runs.
            _become(request, moves, run_program, _clear_of([target for _, target in moves], writing, []))
    finally:
        os.close(writing)
        answer = os.read(reading, 100).decode()
        os.close(reading)
    if answer:
        os.waitpid(pid, 0)
        step, errno = answer.split()
        raise Refused(step, int(errno))
    return pid


def _become(request: Message, moves: list[tuple[int, int]], run_program: Callable[[], None], writing: int) -> None:
    step = "descriptors"
    try:
        os.setpgid(0, 0)
        for number in _RESET:
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        for fd, target in moves:
            os.dup2(fd, target)
        step = "nice"
        os.nice(request["nice"])
        step = "cpu_seconds"
        # One second between SIGXCPU, which a program may handle, and SIGKILL.
        if request["cpu_seconds"] is not None:
            _limit(resource.RLIMIT_CPU, request["cpu_seconds"], 1)
        step = "program"
        run_program()
    except (OSError, ValueError) as error:
        os.write(writing, f"{step} {getattr(error, 'errno', EINVAL)}".encode())
    finally:
        os._exit(127)


def _limit(kind: int, soft: int, more: int) -> None:
    most = resource.getrlimit(kind)[1]
    most = sys.maxsize if most == resource.RLIM_INFINITY else most
    resource.setrlimit(kind, (min(soft, most), min(soft + more, most)))


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
