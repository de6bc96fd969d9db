"""Memory and CPUs of this host, shared by all its workers: heavy phases reserve resources before they claim.

Each worker process keeps a small file with what it has reserved, under a lock that the kernel releases when the process
dies. All files are in one folder; reading them under one lock gives what is left.
"""

import json
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from onerow.core.resources import Resources

with suppress(ImportError):  # on Windows, where this module is imported but no worker runs
    import fcntl


class HostResources:
    """The resources that this process has reserved on its host."""

    def __init__(self, total: Resources, folder: Path | None = None) -> None:
        self.total = total
        self._folder = folder or Path(tempfile.gettempdir()) / f"onerow-{os.getuid()}"
        self._lock = threading.Lock()
        self._taken = Resources()
        self._file: int | None = None

    def take(self, weight: Resources, wanted: int) -> int:
        """Reserve a weight up to `wanted` times; return how many times it fitted."""
        with self._lock, self._locked():
            left = self.total.minus(self._reserved_by_all())
            count = min(wanted, weight.fits(left))
            if count > 0:
                self._write(self._taken.plus(weight.times(count)))
            return count

    def give_back(self, weight: Resources, count: int = 1) -> None:
        """Release a weight `count` times."""
        with self._lock, self._locked():
            self._write(self._taken.minus(weight.times(count)))

    def close(self) -> None:
        """Release everything."""
        with self._lock:
            if self._file is not None:
                self._path.unlink(missing_ok=True)
                os.close(self._file)
                self._file = None

    @property
    def _path(self) -> Path:
        return self._folder / f"resources-{os.getpid()}-{id(self):x}.json"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._folder.is_symlink() or self._folder.stat().st_uid != os.getuid():
            # Another user created the folder first: reserve without the other processes, in a private folder.
            self._folder = Path(tempfile.mkdtemp(prefix="onerow-resources-"))
        lock = os.open(self._folder / "resources.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _reserved_by_all(self) -> Resources:
        taken = self._taken
        for path in self._folder.glob("resources-*.json"):
            if path == self._path:
                continue
            try:
                with path.open("r+b") as file:
                    try:
                        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except BlockingIOError:  # its worker is alive
                        memory, cpus = json.loads(file.read() or b"[0, 0]")
                        taken = taken.plus(Resources(memory, cpus))
                    else:
                        path.unlink(missing_ok=True)
            except FileNotFoundError:
                continue
        return taken

    def _write(self, taken: Resources) -> None:
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX)
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, json.dumps([taken.memory, taken.cpus]).encode(), 0)
        self._taken = taken


def host() -> Resources:
    """Return the memory and CPUs of this host, or of the container of this process."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cpus = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    limit = _read("/sys/fs/cgroup/memory.max")
    if limit.isdecimal():
        memory = min(memory, int(limit))
    quota, _, period = _read("/sys/fs/cgroup/cpu.max").partition(" ")
    if quota.isdecimal() and period.isdecimal():
        cpus = min(cpus, int(quota) / int(period))
    return Resources(memory, cpus)


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
