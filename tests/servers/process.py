"""A server process that runs as an unprivileged user and ends with the test process."""

import contextlib
import fcntl
import os
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

from tests.runner.seeded import seeded

UNPRIVILEGED = 65534

_reserved: list[int] = []  # open files, whose locks end with this process


def make_directory(name: str) -> Path:
    """Create a temporary directory that belongs to the user the server runs as."""
    directory = Path(tempfile.mkdtemp(prefix=f"onerow-{name}-"))
    if os.geteuid() == 0:
        os.chown(directory, UNPRIVILEGED, UNPRIVILEGED)
    return directory


def readable_copy(tree: Path, directory: Path) -> Path:
    """Return the tree itself, or a copy in `directory` if the server's user cannot read it (as in root's home)."""
    tree = tree.resolve()
    if os.geteuid() != 0 or all(step.stat().st_mode & stat.S_IXOTH for step in (tree, *tree.parents)):
        return tree
    copy = directory / tree.name
    if not copy.exists():
        shutil.copytree(tree, copy, symlinks=True)
    return copy


def free_port() -> int:
    """Return a free port below the kernel's range of ephemeral ports, and reserve it for this process.

    A server that restarts must get its port back. A client could take a port of the ephemeral range in between, or
    even connect to itself.
    """
    folder = Path(tempfile.gettempdir()) / f"onerow-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    while True:
        port = seeded("ports").randrange(20_000, 32_000)
        reservation = os.open(folder / str(port), os.O_CREAT | os.O_RDWR, 0o600)
        with socket.socket() as probe, contextlib.suppress(OSError):
            fcntl.flock(reservation, fcntl.LOCK_EX | fcntl.LOCK_NB)
            probe.bind(("127.0.0.1", port))
            _reserved.append(reservation)
            return port
        os.close(reservation)


class Process:
    """A process that starts at once. If its owner is killed, a watchdog sees the closed pipe and ends the process."""

    def __init__(self, command: Sequence[str | Path], *, log: Path, env: Mapping[str, str] | None = None) -> None:
        self._log = log
        as_root = os.geteuid() == 0  # PostgreSQL and PgBouncer refuse to run as root
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                env={**os.environ, **(env or {})},
                start_new_session=True,  # the server must not receive Ctrl-C
                user=UNPRIVILEGED if as_root else None,
                group=UNPRIVILEGED if as_root else None,
                extra_groups=[] if as_root else None,
            )
        self._watchdog = subprocess.Popen(
            # For PostgreSQL, an immediate shutdown. Others inherit it as ignored, if a shell runs the tests with '&'.
            ["sh", "-c", f"read _; kill -QUIT {self.pid}; sleep 2; kill -KILL {self.pid}"],
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

    def wait_until(self, ready: Callable[[], object], *, errors: type[Exception], seconds: float = 900) -> None:
        """Wait until `ready` no longer raises one of the errors."""
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
        self._stop_watchdog()

    def kill(self) -> None:
        """Send SIGKILL to the process and its children, and wait for all of them."""
        if self.is_running:
            processes = [psutil.Process(self.pid), *psutil.Process(self.pid).children(recursive=True)]
            for member in processes:
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.kill()
            self._popen.wait()
            psutil.wait_procs(processes[1:], timeout=900)
        self._stop_watchdog()

    def _stop_watchdog(self) -> None:
        assert self._watchdog.stdin is not None
        self._watchdog.kill()
        self._watchdog.wait()
        self._watchdog.stdin.close()
