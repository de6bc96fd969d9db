"""Connections to one SQLite file, and the one door at which the driver's exceptions become ours."""

import itertools
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from onerow.core.errors import (
    RetryTransaction,
    RowRefused,
    StoreError,
    StoreFull,
    StoreMoved,
    StoreReadOnly,
    StoreUnavailable,
)
from onerow.stores.sqlite.filters import add_functions

Profile = Literal["durable", "fast"]

FLOOR = (3, 35, 0)
"""UPDATE … FROM, RETURNING and partial unique indexes are all there from here on."""

_BUSY_FOR = 5.0  # one wait of a reader inside SQLite
# A writer looks every millisecond whether the lock is free: SQLite's own waits grow to a tenth of a second, in which
# others come and go. After some looks it is in less of a hurry.
_LOOKS_EVERY = 0.001
_MANY_LOOKS, _LOOKS_LATER = 100, 0.004
_PATIENCE = 60.0  # all waits together, before we say so


class Connections:
    """The writer (one per process, one transaction at a time) and some readers."""

    def __init__(self, path: Path, profile: Profile) -> None:
        self.path = path
        self._profile = profile
        self._lock = threading.RLock()
        self._writer: sqlite3.Connection | None = None
        self._readers: list[sqlite3.Connection] = []
        self._pid = os.getpid()
        self._file: tuple[int, int] | None = None  # device and inode of the file that our connections have open

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """A transaction that holds the write lock from its beginning, so that it never has to be given up."""
        with self._lock, translated(self.path):
            connection = self.writer()
            self._patiently(connection, "BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def execute(self, sql: str, given: Sequence[Any]) -> int:
        """One statement as its own transaction; how many rows it changed."""
        with self._lock:
            try:
                return self.writer().execute(sql, given).rowcount
            except sqlite3.Error:
                pass  # most likely someone else writes just now: once more, with patience, or the error in our words
            with translated(self.path):
                return self._patiently(self.writer(), sql, given).rowcount

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A connection for reading; one snapshot per statement."""
        with translated(self.path):
            connection = self._reader()
            try:
                yield connection
            finally:
                if self._pid == os.getpid():
                    self._readers.append(connection)

    def data_version(self) -> int:
        """A number that changes when another connection has committed; our own commits leave it alone."""
        with self._lock, translated(self.path):
            return int(self._patiently(self.writer(), "PRAGMA data_version").fetchone()[0])

    def writer(self) -> sqlite3.Connection:
        self._after_fork()
        self._check_file()
        if self._writer is None:
            self._writer = self._open()
            self._writer.execute(f"PRAGMA busy_timeout = {int(_LOOKS_EVERY * 1000)}")
        return self._writer

    def close(self) -> None:
        with self._lock:
            for connection in (self._writer, *self._readers):
                if connection is not None and self._pid == os.getpid():
                    connection.close()
            self._writer = None
            self._readers = []
            self._file = None

    def _patiently(self, connection: sqlite3.Connection, sql: str, given: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Execute what needs the write lock, as soon as those before us have let it go."""
        give_up = time.monotonic() + _PATIENCE
        for look in itertools.count():
            try:
                return connection.execute(sql, given)
            except sqlite3.OperationalError as error:
                if _primary(error) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) or time.monotonic() > give_up:
                    raise
            if look > _MANY_LOOKS:
                time.sleep(_LOOKS_LATER)
        raise AssertionError("it gives up before")

    def _check_file(self) -> None:
        """Raise StoreMoved if the path no longer leads to the file that our connections have open.

        SQLite goes on writing to a file that was deleted or moved, and nothing of that can be found afterwards. The
        inode of an open file is not given to another, so that a new file at the same path has another number.
        """
        if self._file is None:
            return
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            raise StoreMoved(
                f"{self.path}: the database file was deleted or moved while it was in use; stop all processes that "
                f"use it, put the file back (or restore a backup), and start them again"
            ) from None
        except OSError:
            return  # its folder can't be read now; SQLite will say what is wrong
        if (found.st_dev, found.st_ino) != self._file:
            raise StoreMoved(
                f"{self.path}: the database file was replaced by another file while it was in use; "
                f"start all processes that use it again, so that they open the new one"
            )

    def _reader(self) -> sqlite3.Connection:
        self._after_fork()
        self._check_file()
        try:
            return self._readers.pop()
        except IndexError:
            return self._open()

    def _after_fork(self) -> None:
        # A connection must not cross a fork: its file locks belong to the parent.
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._writer = None
            self._readers = []
            self._file = None

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=_BUSY_FOR, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        try:
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                self._switch_to_wal(connection)
            connection.execute(f"PRAGMA synchronous = {'FULL' if self._profile == 'durable' else 'NORMAL'}")
            connection.execute("PRAGMA cache_size = -32768")
            connection.execute("PRAGMA foreign_keys = OFF")
            add_functions(connection)
            if self._file is None:
                found = os.stat(self.path)
                self._file = (found.st_dev, found.st_ino)
        except BaseException:
            connection.close()
            raise
        return connection

    def _switch_to_wal(self, connection: sqlite3.Connection) -> None:
        # The switch needs the file for itself and ignores the busy timeout, so that several starters must take turns.
        give_up = time.monotonic() + _PATIENCE
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if _primary(error) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) or time.monotonic() > give_up:
                    raise
                time.sleep(0.005)


@contextmanager
def translated(path: Path | str, *, callers: bool = False) -> Iterator[None]:
    """Driver exceptions become ours; `callers`: the transaction is the caller's, so only it can try again."""
    try:
        yield
    except (sqlite3.Error, OverflowError) as error:
        raise _ours(error, path, callers) from error


def _ours(error: sqlite3.Error | OverflowError, path: Path | str, callers: bool) -> StoreError:
    code = _primary(error)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        if callers:
            return RetryTransaction(
                f"{path}: another connection writes; roll back and run the transaction again, "
                f"beginning it with BEGIN IMMEDIATE"
            )
        return StoreUnavailable(f"{path}: another process has held the write lock for {_PATIENCE:.0f} s; look for it")
    if code == sqlite3.SQLITE_FULL:
        return StoreFull(f"{path}: the disk is full; make room, nothing was lost")
    if code == sqlite3.SQLITE_READONLY:
        return StoreReadOnly(f"{path}: the file or its folder can't be written; check owner and mode")
    if code == sqlite3.SQLITE_CANTOPEN:
        return StoreUnavailable(f"{path}: can't be opened; check that its folder exists and may be written")
    if code == sqlite3.SQLITE_NOTADB:
        return StoreError(f"{path}: is not an SQLite database")
    if code == sqlite3.SQLITE_CORRUPT:
        return StoreError(f"{path}: the database is damaged ({error}); restore a backup")
    if code == sqlite3.SQLITE_IOERR:
        return StoreUnavailable(f"{path}: input or output failed ({error}); check the disk")
    if isinstance(error, OverflowError) or code in (sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH):
        return RowRefused(f"{path}: {error}")
    return StoreError(f"{path}: {error}")


def _primary(error: Exception) -> int:
    """The error's class; the low byte of SQLite's extended code."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
