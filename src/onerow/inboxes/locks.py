"""Lock files beside the files of a folder: pid, host and token of the process that takes a file.

A lock saves work; it does not decide. Two processes that take the same file find the same row. So a lock may be taken
over on little proof: at once if its process on this host is dead, and after some time, by the clock of the file system
that all hosts of a share have in common, if the process can't be examined or keeps the lock too long.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import msgspec

from onerow.identity import Identity

LOCK_FOR = 60.0
"""Seconds after which a lock no longer counts if its process can't be examined, because it is on another host."""
LONGEST_LOCK = 600.0
"""Seconds after which no lock counts. A file is locked for one batch; the thread that held this lock has failed."""
SUFFIX = ".lock"
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class FileLocks:
    """The lock files that one inbox holds in its folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._identity = Identity.of_this_process()
        self._body = msgspec.json.encode(msgspec.to_builtins(self._identity) | {"token": uuid4().hex})
        self._draft = ""
        self._held: set[str] = set()

    @contextmanager
    def batch(self) -> Iterator[float]:
        """Prepare locks for some files; yield the time by the clock of the file system.

        The locks are links to one file: a link is complete at once, and costs a quarter of a new file.
        """
        self._draft = f"{self._folder}/.{uuid4().hex}.tmp"
        write_new(self._draft, self._body)
        try:
            yield os.stat(self._draft).st_mtime
        finally:
            with suppress(FileNotFoundError):
                os.unlink(self._draft)

    def take(self, name: str, now: float) -> int:
        """Lock a file, in a batch; return 0 if another has the lock, 1 if this inbox has it, 2 if another has left it."""
        path = self._path(name)
        if self._create(path):
            found = 1
        elif self._remove_if_stale(name, now) and self._create(path):
            found = 2
        else:
            return 0
        self._held.add(name)
        return found

    def release(self, name: str) -> None:
        """Unlock a file, if this inbox has locked it."""
        if name in self._held:
            self._held.discard(name)
            with suppress(FileNotFoundError):
                os.unlink(self._path(name))

    def remove_leftover(self, lock: str, now: float) -> None:
        """Remove a stale lock whose file is gone: its process was killed after it had moved the file."""
        name = lock.removesuffix(SUFFIX)
        if not os.path.lexists(f"{self._folder}/{name}"):
            self._remove_if_stale(name, now)

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}{SUFFIX}"

    def _create(self, path: str) -> bool:
        try:
            os.link(self._draft, path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return self._create_without_link(path)
        return True

    def _create_without_link(self, path: str) -> bool:
        # Others may see it empty for a moment; a lock that can't be read counts as that of another host.
        try:
            write_new(path, self._body)
        except FileExistsError:
            return False
        return True

    def _remove_if_stale(self, name: str, now: float) -> bool:
        return name not in self._held and self._is_stale(self._path(name), now) and self._remove(self._path(name))

    def _is_stale(self, path: str, now: float) -> bool:
        try:
            age = now - os.stat(path).st_mtime
            with open(path, "rb") as file:
                owner = msgspec.json.decode(file.read(), type=dict)
        except FileNotFoundError:
            return True
        except (OSError, msgspec.MsgspecError):
            return age > LOCK_FOR
        mine = self._identity
        if age > LONGEST_LOCK or owner.get("name") == mine.name:  # a lock of this inbox that it no longer knows
            return True
        if mine.boot and owner.get("boot") == mine.boot and owner.get("namespace") == mine.namespace:
            return mine.knows_dead(owner)
        return age > LOCK_FOR

    def _remove(self, path: str) -> bool:
        """Remove a stale lock; only one of several processes that try it succeeds."""
        grave = f"{self._folder}/.{uuid4().hex}.tmp"
        try:
            before = os.stat(path)
            os.rename(path, grave)
        except FileNotFoundError:
            return True
        after = os.stat(grave)
        if (before.st_ino, before.st_mtime_ns) != (after.st_ino, after.st_mtime_ns):
            # Another process had replaced the stale lock by its own: put it back, unless a third has locked the file.
            with suppress(OSError):
                os.link(grave, path)
            os.unlink(grave)
            return False
        os.unlink(grave)
        return True


def write_new(path: str | Path, body: bytes, mode: int = 0o640) -> None:
    """Write a new file that only its owner may write; an incomplete one is removed."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with open(descriptor, "wb") as file:
            file.write(body)
    except OSError:
        with suppress(FileNotFoundError):
            os.unlink(path)
        raise


def replace_file(path: Path, body: bytes) -> None:
    """Write a file at once: a reader sees the old content or the new one, never a part."""
    draft = path.with_name(f".{uuid4().hex}.tmp")
    write_new(draft, body)
    try:
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
