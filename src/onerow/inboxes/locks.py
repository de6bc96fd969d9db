"""Lock files beside the files of a folder: pid, host and token of the process that takes a file.

A lock of a dead process on this host is taken over at once. A lock of another host is taken over when its time is up by
the clock of the file system, which all hosts of a share have in common.
"""

import os
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import msgspec

from onerow.identity import Identity

LOCK_FOR = 60.0
"""Seconds after which a lock of another host, whose process can't be examined from here, no longer counts."""


class FileLocks:
    """The lock files that this process holds in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._identity = Identity.of_this_process()

    def take(self, name: str, now: float) -> bool:
        """Lock a file; return whether this process has the lock now. now: the time by the file system's clock."""
        path = self._path(name)
        if self._create(path):
            return True
        return self._is_stale(path, now) and self._remove_stale(path) and self._create(path)

    def release(self, name: str) -> None:
        """Unlock a file."""
        with suppress(FileNotFoundError):
            self._path(name).unlink()

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.lock"

    def _create(self, path: Path) -> bool:
        # Written under another name first, so that a lock file is never seen empty.
        token = uuid4().hex
        draft = path.with_name(f".{token}.tmp")
        body = msgspec.json.encode(msgspec.to_builtins(self._identity) | {"token": token})
        write_new(draft, body)
        try:
            os.link(draft, path)
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        return True

    def _is_stale(self, path: Path, now: float) -> bool:
        try:
            expired = now - path.stat().st_mtime > LOCK_FOR
        except FileNotFoundError:
            return True
        try:
            owner = msgspec.json.decode(path.read_bytes(), type=dict)
        except FileNotFoundError:
            return True
        except (OSError, msgspec.MsgspecError):
            return expired
        mine = self._identity
        if mine.boot and owner.get("boot") == mine.boot and owner.get("namespace") == mine.namespace:
            return mine.knows_dead(owner)
        return expired

    def _remove_stale(self, path: Path) -> bool:
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
