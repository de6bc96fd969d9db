"""A request to start a child: checked, and encoded for a reaper."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from .exits import CannotStart
from .host.protocol import MOST_FDS, Message


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A child to be started; the caller keeps its descriptors and may close them afterwards."""

    argv: Sequence[str]
    cwd: Path | None
    env: Mapping[str, str] | None
    stdin: int | None
    stdout: int | None
    stderr: int | None
    pass_fds: Sequence[int]
    nice: int
    umask: int | None
    memory: int | None
    cpu_seconds: int | None
    deadline: float | None = None
    grace: float = 0.0
    stop_signal: int | None = None

    @property
    def program(self) -> str:
        """The name for error messages."""
        return self.argv[0] if self.argv else ""

    def message(self, tag: str) -> tuple[Message, list[int]]:
        """Return the message for a reaper and the descriptors to pass with it; raise CannotStart."""
        if not self.argv:
            raise CannotStart("", "the argument list is empty; its first item names the program")
        fds = {0: self.stdin, 1: self.stdout, 2: self.stderr} | {fd: fd for fd in self.pass_fds}
        given = {target: fd for target, fd in fds.items() if fd is not None}
        if len(given) > MOST_FDS:
            raise CannotStart(self.program, f"at most {MOST_FDS} descriptors can be passed")
        message: Message = {
            "start": [self._checked(os.fsencode(part)) for part in self.argv],
            "cwd": os.getcwdb() if self.cwd is None else self._checked(os.fsencode(self.cwd)),
            "env": _inherited() if self.env is None else self._variables(self.env),
            "tag": tag.encode(),
            "targets": list(given),
            "nice": self.nice,
            "umask": self.umask,
            "memory": self.memory,
            "cpu_seconds": self.cpu_seconds,
            "deadline": self.deadline,
            "grace": self.grace,
            "stop_signal": self.stop_signal,
        }
        return message, list(given.values())

    def _variables(self, env: Mapping[str, str]) -> bytes:
        if any(not name or "=" in name for name in env):
            raise CannotStart(self.program, "the name of a variable is empty or contains '='")
        block = os.fsencode("\0".join([f"{name}={value}" for name, value in env.items()]))
        if block.count(b"\0") >= max(1, len(env)):
            raise CannotStart(self.program, "a variable contains a NUL character")
        return block

    def _checked(self, text: bytes) -> bytes:
        if b"\0" in text:
            raise CannotStart(self.program, "an argument or its folder contains a NUL character")
        return text


_known: tuple[dict[bytes, bytes], bytes] = {}, b""


def _inherited() -> bytes:
    """Return the worker's own environment, encoded; cached until it changes."""
    global _known
    # os.environ decodes every variable on each access, which costs a tenth of a whole start.
    current: Mapping[bytes, bytes] = getattr(os.environ, "_data", os.environb)
    if current != _known[0]:
        copy = dict(current)
        _known = copy, b"\0".join([name + b"=" + value for name, value in copy.items()])
    return _known[1]
