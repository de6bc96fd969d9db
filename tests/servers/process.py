"""A server process of ours, run by an ordinary user and kept on a leash."""

import contextlib
import os
import random
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

NOBODY = 65534


def make_room(name: str) -> Path:
    """A directory that belongs to the user the server runs as."""
    room = Path(tempfile.mkdtemp(prefix=f"onerow-{name}-"))
    if os.geteuid() == 0:
        os.chown(room, NOBODY, NOBODY)
    return room


def within_reach(tree: Path, room: Path) -> Path:
    """The tree itself, or a copy in the room where an ordinary user can't get to it (root's home is closed to others)."""
    tree = tree.resolve()
    if os.geteuid() != 0 or all(step.stat().st_mode & stat.S_IXOTH for step in (tree, *tree.parents)):
        return tree
    copy = room / tree.name
    if not copy.exists():
        shutil.copytree(tree, copy, symlinks=True)
    return copy


def free_port() -> int:
    """A port nobody listens on, below those that the kernel hands to clients.

    A server that restarts must get its port back: from the kernel's own range, a client could sit on it meanwhile,
    or even connect to itself.
    """
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Process:
    """Started at once. Ends with us even when we are killed: its leash sees our end of a pipe close."""

    def __init__(self, command: Sequence[str | Path], *, log: Path, env: Mapping[str, str] | None = None) -> None:
        self._log = log
        as_root = os.geteuid() == 0  # PostgreSQL and PgBouncer refuse to run as root, with good reason
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                env={**os.environ, **(env or {})},
                start_new_session=True,  # a Ctrl-C is ours to handle, not the server's
                user=NOBODY if as_root else None,
                group=NOBODY if as_root else None,
                extra_groups=[] if as_root else None,
            )
        self._leash = subprocess.Popen(
            ["sh", "-c", f"read _; kill -QUIT {self.pid}"],  # to PostgreSQL, an immediate shutdown
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def is_running(self) -> bool:
        return self._popen.poll() is None

    def wait_until(self, ready: Callable[[], object], *, errors: type[Exception], seconds: float = 60) -> None:
        """Until `ready` no longer raises one of the errors."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                ready()
                return
            except errors as error:
                if not self.is_running or time.monotonic() > deadline:
                    self.kill()
                    raise RuntimeError(f"the server did not start: {error}\n{self._log.read_text()[-4000:]}") from error
                time.sleep(0.02)

    def stop(self, with_signal: signal.Signals = signal.SIGTERM, *, seconds: float = 30) -> None:
        if self.is_running:
            self._popen.send_signal(with_signal)
            try:
                self._popen.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill()
        self._unleash()

    def kill(self) -> None:
        """kill -9, its children too, and wait until the last is gone."""
        if self.is_running:
            family = [psutil.Process(self.pid), *psutil.Process(self.pid).children(recursive=True)]
            for member in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.kill()
            self._popen.wait()
            psutil.wait_procs(family[1:], timeout=30)
        self._unleash()

    def _unleash(self) -> None:
        assert self._leash.stdin is not None
        self._leash.kill()
        self._leash.wait()
        self._leash.stdin.close()
