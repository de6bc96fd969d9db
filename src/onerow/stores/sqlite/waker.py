"""Wakes a worker within a millisecond of another process's commit, at no cost while idle.

Every commit appends to the -wal file, which inotify reports; PRAGMA data_version then tells whether another connection
committed. Without inotify data_version is polled. The file doesn't tell what was committed, so every commit of another
process wakes, also a heartbeat; core.wakeups decides only within the process.
"""

import ctypes
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from onerow.stores.shared.waking import WakePipe, drain, readable

_IN_MODIFY = 0x2
_POLL = 0.005
_COMMIT_VISIBLE_WITHIN = 0.5
_MIN_POLL, _MAX_POLL = 0.0005, 0.02


class SqliteWaker:
    """Waits until another connection commits or this process calls `poke`."""

    def __init__(self, path: Path, data_version: Callable[[], int], forget: Callable[["SqliteWaker"], None]) -> None:
        self._data_version = data_version
        self._forget = forget
        self._seen = -1
        self._pipe = WakePipe()
        data_version()  # opens the database, which creates the -wal file
        self._watch = _watch(Path(f"{path}-wal"))

    def wait(self, timeout: float) -> bool:
        """See ports.Waker."""
        until = time.monotonic() + timeout
        poll_until, poll_every = 0.0, _MIN_POLL
        while True:
            version = self._data_version()
            if version != self._seen:
                self._seen = version
                return True
            now = time.monotonic()
            if now >= until:
                return False
            # The -wal file is written before the commit is visible, so keep polling for a while after a write.
            poked, hinted = self._wait(until - now if now >= poll_until else min(poll_every, until - now))
            poll_every = min(poll_every * 1.5, _MAX_POLL)
            if poked:
                return True
            if hinted:
                poll_until, poll_every = time.monotonic() + _COMMIT_VISIBLE_WITHIN, _MIN_POLL

    def _wait(self, left: float) -> tuple[bool, bool]:
        """Wait for an event; return (was it a poke, was the -wal file written)."""
        watched: list[Any] = [self._pipe] if self._watch is None else [self._pipe, self._watch]
        ready = readable(watched, left if self._watch is not None else min(left, _POLL))
        if self._pipe in ready:
            self._pipe.clear()
        if self._watch is not None and self._watch in ready:
            drain(self._watch)
        return self._pipe in ready, self._watch is not None and self._watch in ready

    def poke(self) -> None:
        """See ports.Waker."""
        self._pipe.poke()

    def close(self) -> None:
        self._forget(self)
        self._pipe.close()
        if self._watch is not None:
            os.close(self._watch)
            self._watch = None


def _watch(wal: Path) -> int | None:
    if sys.platform == "linux":
        return _inotify(wal)
    else:
        return None


def _inotify(wal: Path) -> int | None:
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        descriptor = int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        if descriptor < 0:
            return None
        if libc.inotify_add_watch(descriptor, os.fsencode(wal), _IN_MODIFY) < 0:
            os.close(descriptor)
            return None
    except (OSError, AttributeError):
        return None
    return descriptor
