"""A program to be started as a child, and why it could not be started."""

import os
from collections.abc import Mapping, Sequence
from errno import E2BIG, EACCES, EAGAIN, ENOENT, ENOEXEC
from pathlib import Path

import msgspec

from .host.frames import MOST_FDS, Message
from .host.orphans import TAG


class CannotStart(Exception):
    """A child could not be started: the program, the reason, and the errno if the system gave one."""

    def __init__(self, program: str, reason: str, errno: int | None = None) -> None:
        self.program = program
        self.reason = reason
        self.errno = errno
        super().__init__(f"Cannot start {program!r}: {reason}.")

    def __reduce__(self) -> tuple[type["CannotStart"], tuple[str, str, int | None]]:
        return type(self), (self.program, self.reason, self.errno)


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A program and its settings; the caller keeps the descriptors and may close them after the start."""

    argv: Sequence[str]
    cwd: Path | None = None
    env: Mapping[str, str] | None = None
    """None means this process's environment."""
    stdin: int | None = None
    """For each standard stream, None means /dev/null."""
    stdout: int | None = None
    stderr: int | None = None
    pass_fds: Sequence[int] = ()
    """Descriptors that keep their numbers."""
    memory_limit: int | None = None
    """Bytes that the whole tree may use; beyond that it is killed. Without /proc (macOS) nothing limits it."""
    stop_signal: int | None = None
    """Sent to the program alone, before the TERM of every stop."""

    @property
    def name(self) -> str:
        """The name for error messages."""
        return self.argv[0] if self.argv else ""

    def request(self, tag: str) -> tuple[Message, list[int]]:
        """Return the message for a reaper and the descriptors to pass with it; raise CannotStart."""
        if not self.argv:
            raise CannotStart("", "the argument list is empty; its first item names the program")
        streams = {0: self.stdin, 1: self.stdout, 2: self.stderr} | {fd: fd for fd in self.pass_fds}
        fds = {target: fd for target, fd in streams.items() if fd is not None}
        if len(fds) > MOST_FDS:
            raise CannotStart(self.name, f"at most {MOST_FDS} descriptors can be passed")
        env = {**(os.environ if self.env is None else self.env), TAG: tag}
        if "" in env or "=" in "".join(env):
            raise CannotStart(self.name, "the name of a variable is empty or contains '='")
        request: Message = {
            "argv": self._joined(self.argv),
            "cwd": self._joined([os.getcwd() if self.cwd is None else str(self.cwd)]),
            "variables": self._joined(list(env)),
            "values": self._joined(list(env.values())),
            "targets": list(fds),
            "memory_limit": self.memory_limit,
            "stop_signal": self.stop_signal,
        }
        return request, list(fds.values())

    def refusal(self, step: str, errno: int) -> CannotStart:
        """Return the exception for a refused start, with what to do next."""
        reason = _REASONS.get((step, errno)) or _REASONS[step, 0]
        why = os.strerror(errno).lower()
        return CannotStart(self.name, reason.format(why=why, cwd=str(self.cwd)), errno)

    def _joined(self, parts: Sequence[str]) -> bytes:
        block = os.fsencode("\0".join(parts))
        if block.count(b"\0") >= len(parts):
            raise CannotStart(self.name, "an argument, a variable or its folder contains a NUL character")
        return block


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
