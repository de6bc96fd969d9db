"""What a start asks for, checked and put in the words that a warden understands."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from .exits import CannotStart
from .host.wire import MOST_FDS, Message


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A child to be started; descriptors stay the caller's, who may close them afterwards."""

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

    @property
    def program(self) -> str:
        """The name for error messages."""
        return self.argv[0] if self.argv else ""

    def message(self, mark: str) -> tuple[Message, bytes, list[int]]:
        """For a warden: the message; folder, arguments and variables; descriptors. Raises CannotStart."""
        if not self.argv:
            raise CannotStart("", "the argument list is empty; its first item names the program")
        fds = {0: self.stdin, 1: self.stdout, 2: self.stderr} | {fd: fd for fd in self.pass_fds}
        given = {target: fd for target, fd in fds.items() if fd is not None}
        if len(given) > MOST_FDS:
            raise CannotStart(self.program, f"at most {MOST_FDS} descriptors can be passed")
        texts, env = self._texts(), self._variables()
        message: Message = {"start": len(texts), "targets": list(given), "mark": mark}
        for name in ("umask", "memory", "cpu_seconds"):
            if (value := getattr(self, name)) is not None:
                message[name] = value
        if self.nice:
            message["nice"] = self.nice
        return message, texts + env, list(given.values())

    def _texts(self) -> bytes:
        folder = os.getcwdb() if self.cwd is None else os.fsencode(self.cwd)
        return self._joined([folder, *map(os.fsencode, self.argv)])

    def _variables(self) -> bytes:
        if self.env is None:
            return _inherited()
        if any(not name or "=" in name for name in self.env):
            raise CannotStart(self.program, "the name of a variable is empty or contains '='")
        return self._joined([os.fsencode(f"{name}={value}") for name, value in self.env.items()])

    def _joined(self, texts: Sequence[bytes]) -> bytes:
        # As bytes separated by NUL, which none of them may contain, any name survives the trip.
        joined = b"\0".join(texts)
        if joined.count(b"\0") >= max(1, len(texts)):
            raise CannotStart(self.program, "an argument, a variable or its folder contains a NUL character")
        return joined


_known: tuple[dict[bytes, bytes], bytes] = {}, b""


def _inherited() -> bytes:
    """Our own environment, encoded anew only when it has changed."""
    global _known
    # os.environ decodes every variable on every look, which costs a tenth of a whole start.
    current: Mapping[bytes, bytes] = getattr(os.environ, "_data", os.environb)
    if current != _known[0]:
        copy = dict(current)
        _known = copy, b"\0".join([name + b"=" + value for name, value in copy.items()])
    return _known[1]
