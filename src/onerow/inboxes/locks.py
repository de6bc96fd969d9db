"""Lock files beside the files of a folder: pid, host and token of the process that takes a file.

A lock saves work; it does not decide. Two processes that take the same file find the same row. So a lock may be taken
over on little proof: at once if its process on this host is dead, and after some time, by the clock of the file system
that all hosts of a share have in common, if the process can't be examined or keeps the lock too long.
"""

import os
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import msgspec

from onerow.identity import Identity

LOCK_FOR = 60.0
"""Seconds after which a lock no longer counts if its process can't be examined, because it is on another host."""
LONGEST_LOCK = 600.0
"""Seconds after which no lock counts. A file is locked for one batch; the thread that held this lock has failed."""


SUFFIX = ".lock"


class FileLocks:
    """The lock files that one inbox holds in its folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._identity = Identity.of_this_process()
        self._body = msgspec.json.encode(msgspec.to_builtins(self._identity) | {"token": uuid4().hex})
        self._held: set[str] = set()

    def take(self, name: str, now: float) -> bool:
        """Lock a file; return whether this inbox has the lock now. now: the time by the file system's clock."""
        path = self._path(name)
        if not self._create(path) and not (self._remove_if_stale(name, now) and self._create(path)):
            return False
        self._held.add(name)
        return True

    def release(self, name: str) -> None:
        """Unlock a file, if this inbox has locked it."""
        if name in self._held:
            self._held.discard(name)
            with suppress(FileNotFoundError):
                self._path(name).unlink()

    def remove_leftover(self, lock: str, now: float) -> None:
        """Remove a stale lock whose file is gone: its process was killed after it had moved the file."""
        name = lock.removesuffix(SUFFIX)
        if not os.path.lexists(self._folder / name):
            self._remove_if_stale(name, now)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}{SUFFIX}"

    def _create(self, path: Path) -> bool:
        # Others may see it empty for a moment; a lock that can't be read counts as that of another host.
        try:
            write_new(path, self._body)
        except FileExistsError:
            return False
        return True

    def _remove_if_stale(self, name: str, now: float) -> bool:
        return name not in self._held and self._is_stale(self._path(name), now) and self._remove(self._path(name))

    def _is_stale(self, path: Path, now: float) -> bool:
        try:
            age = now - path.stat().st_mtime
        except FileNotFoundError:
            return True
        try:
            owner = msgspec.json.decode(path.read_bytes(), type=dict)
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

    def _remove(self, path: Path) -> bool:
        """Remove a stale lock; only one of several processes that try it succeeds."""
        grave = path.with_name(f".{uuid4().hex}.tmp")
        try:
            before = path.stat()
            path.rename(grave)
        except FileNotFoundError:
            return True
        after = grave.stat()
        if (before.st_ino, before.st_mtime_ns) != (after.st_ino, after.st_mtime_ns):
            # Another process had replaced the stale lock by its own: put it back.
            with suppress(FileExistsError):
                os.link(grave, path)
            grave.unlink()
            return False
        grave.unlink()
        return True


def write_new(path: Path, body: bytes, mode: int = 0o640) -> None:
    """Write a new file that only its owner may write; an incomplete one is removed."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with open(descriptor, "wb") as file:
            file.write(body)
    except OSError:
        path.unlink(missing_ok=True)
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
