"""Start a child from a request: an argument list, never a shell, in its own process group.

The session is that of the host process, which has no terminal. One session per child would cost more, and the
kernel's autogroups would then give every child the same weight, whatever its niceness.
"""

import fcntl
import os
import resource
import signal
from collections.abc import Callable, Sequence

from .kernel import RESET_IN_CHILD, die_with_parent
from .orphans import TAG
from .protocol import Message


class Order:
    """A child to be started, as described by the worker's message."""

    def __init__(self, message: Message, env: dict[bytes, bytes], fds: Sequence[int]) -> None:
        self.argv: list[bytes] = message["start"]
        self.cwd: bytes = message["cwd"]
        self.env = {**env, TAG.encode(): message["tag"]}
        self.fds = fds
        self.targets: list[int] = message["targets"]
        self.nice: int = message["nice"]
        self.umask: int | None = message["umask"]
        self.memory: int | None = message["memory"]
        self.cpu_seconds: int | None = message["cpu_seconds"]


def variables(raw: bytes) -> dict[bytes, bytes]:
    """Parse an environment from its NUL-separated form."""
    return {name: value for name, _, value in (part.partition(b"=") for part in raw.split(b"\0")) if name}


class Refused(Exception):
    """The child could not be started: at which step, and with which errno."""

    def __init__(self, step: str, errno: int) -> None:
        self.step = step
        self.errno = errno


def spawn(order: Order) -> int:
    """Start the child and return its pid when its program runs; raise Refused."""
    umask = None if order.umask is None else os.umask(order.umask)
    try:
        # Folder and umask are set in the reaper, because posix_spawn cannot set them in the child;
        # a reaper has one child at a time and does not use them itself.
        _step("cwd", os.chdir, order.cwd)
        program = _find(order.argv[0], order.env.get(b"PATH", os.defpath.encode()))
        if order.nice or order.memory is not None or order.cpu_seconds is not None:
            return _by_fork(order, program)
        try:
            return _by_spawn(order, program)
        except NotImplementedError:
            return _by_fork(order, program)
    finally:
        if umask is not None:
            os.umask(umask)
        os.chdir("/")


def _by_spawn(order: Order, program: bytes) -> int:
    # posix_spawn shares the reaper's memory until the exec, which halves the cost of a start.
    spares = [_clear_of(order.targets, fd) for fd in order.fds]
    actions: list[tuple[int, int, int] | tuple[int, int, bytes, int, int]] = [
        (os.POSIX_SPAWN_DUP2, fd, target) for fd, target in zip(spares, order.targets, strict=True)
    ]
    actions += [(os.POSIX_SPAWN_OPEN, fd, b"/dev/null", os.O_RDWR, 0) for fd in _unset(order)]
    try:
        return os.posix_spawn(
            program, order.argv, order.env,
            file_actions=actions, setpgroup=0, setsigmask=(), setsigdef=RESET_IN_CHILD,
        )  # fmt: skip
    except OSError as error:
        raise Refused("program", error.errno or 0) from None
    finally:
        for spare in set(spares) - set(order.fds):
            os.close(spare)


def _by_fork(order: Order, program: bytes) -> int:
    """Start the child with a fork, which is slower, for settings that only the child itself can make."""
    reaper = os.getpid()
    reading, writing = os.pipe()
    try:
        pid = os.fork()
    except OSError as error:
        os.close(reading)
        os.close(writing)
        raise Refused("program", error.errno or 0) from None
    if pid == 0:
        try:
            _become(order, program, reaper, writing := _clear_of(order.targets, writing))
        except Refused as refused:
            os.write(writing, f"{refused.step} {refused.errno}".encode())
        finally:
            os._exit(127)
    os.close(writing)
    # The pipe closes at the exec, so an empty answer means that the program runs.
    answer = os.read(reading, 100).decode()
    os.close(reading)
    if answer:
        os.waitpid(pid, 0)
        step, errno = answer.split()
        raise Refused(step, int(errno))
    return pid


def _become(order: Order, program: bytes, reaper: int, writing: int) -> None:
    os.setpgid(0, 0)
    for number in RESET_IN_CHILD:
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    die_with_parent()
    if os.getppid() != reaper:
        return  # the reaper died before the call above took effect
    spares = [_clear_of([*order.targets, writing], fd) for fd in order.fds]
    for fd, target in zip(spares, order.targets, strict=True):
        _step("descriptors", os.dup2, fd, target)
    for fd in _unset(order):
        os.dup2(os.open("/dev/null", os.O_RDWR), fd)
    _step("nice", os.nice, order.nice)
    if order.cpu_seconds is not None:
        # One second between SIGXCPU, which a program may handle, and SIGKILL.
        _step("cpu_seconds", _limit, resource.RLIMIT_CPU, order.cpu_seconds, order.cpu_seconds + 1)
    if order.memory is not None:
        _step("memory", _limit, resource.RLIMIT_AS, order.memory, order.memory)
    _step("program", os.execve, program, order.argv, order.env)


def _limit(kind: int, soft: int, hard: int) -> None:
    most = resource.getrlimit(kind)[1]
    if most != resource.RLIM_INFINITY:
        soft, hard = min(soft, most), min(hard, most)
    resource.setrlimit(kind, (soft, hard))


def _find(program: bytes, path: bytes) -> bytes:
    """Return the program's file, looked up in the child's own PATH like execvp does."""
    if b"/" in program:
        return program
    for folder in path.split(b":"):
        candidate = os.path.join(folder or b".", program)
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    raise Refused("search", 2)


def _unset(order: Order) -> list[int]:
    return [fd for fd in (0, 1, 2) if fd not in order.targets]


def _clear_of(taken: Sequence[int], fd: int) -> int:
    """Return a descriptor for the same file whose number is not in `taken`."""
    held = []
    while fd in taken:
        fd = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
        held.append(fd)
    for spare in held[:-1]:
        os.close(spare)
    return fd


def _step(name: str, call: Callable[..., object], *args: object) -> None:
    try:
        call(*args)
    except (OSError, ValueError) as error:
        raise Refused(name, getattr(error, "errno", None) or 22) from None
