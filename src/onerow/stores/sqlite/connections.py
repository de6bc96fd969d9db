"""Connections to one SQLite file, and the translation of sqlite3 exceptions to onerow errors."""

import itertools
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
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
"""The oldest supported SQLite: the first with both UPDATE … FROM and RETURNING."""

_READER_TIMEOUT = 5.0  # seconds
# A writer polls the write lock every millisecond, because SQLite's own busy handler sleeps up to 100 ms and loses the
# lock to other writers. After some polls it slows down.
_POLL_INTERVAL = 0.001
_FAST_POLLS, _SLOW_POLL_INTERVAL = 100, 0.004
_LOCK_TIMEOUT = 60.0  # seconds until a writer raises StoreUnavailable
# The driver's messages for text that it can't decode, in a result and as an argument of a function of filters.py.
_NOT_UTF8 = ("Could not decode to UTF-8", "user-defined function raised exception")


class Connections:
    """One writer connection per process, with one transaction at a time, and a pool of readers."""

    def __init__(self, path: Path, profile: Profile) -> None:
        self.path = path
        self._profile = profile
        self._lock = threading.RLock()
        self._writer: sqlite3.Connection | None = None
        self._readers: list[sqlite3.Connection] = []
        self._pid = os.getpid()
        self._file: tuple[int, int] | None = None  # device and inode of the open file

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction that takes the write lock at its start, so that it never fails on a lock upgrade."""
        with self._lock, translated(self.path):
            connection = self.writer()
            self._execute_locked(connection, "BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def execute(self, sql: str, given: Sequence[Any]) -> int:
        """Execute one statement as its own transaction; return how many rows it changed."""
        with self._lock:
            try:
                return self.writer().execute(sql, given).rowcount
            except sqlite3.Error:
                pass  # most likely the lock is taken: wait for it below, which also translates errors
            with translated(self.path):
                return self._execute_locked(self.writer(), sql, given).rowcount

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection for reading; each statement reads its own snapshot."""
        with translated(self.path):
            pool = self._readers
            connection = self._reader()
            try:
                yield connection
            finally:
                if self._pid != os.getpid():
                    pass  # it belongs to the process that this one was forked from
                elif pool is self._readers:
                    pool.append(connection)
                else:
                    connection.close()  # the others were closed in the meantime

    @contextmanager
    def look(self) -> Iterator[sqlite3.Connection | None]:
        """Lend a connection for reading, without creating the file or waiting for a lock; None if there is no file.

        `read` opens the database and switches it to WAL, which waits until no other connection has a transaction.
        """
        if self._file is not None and self._pid == os.getpid():
            with self.read() as connection:
                yield connection
            return
        if not self.path.exists():
            yield None
            return
        with translated(self.path), closing(sqlite3.connect(f"{self.path.as_uri()}?mode=rw", uri=True)) as connection:
            yield connection

    def data_version(self) -> int:
        """Return a number that changes when another connection commits, but not when this one does."""
        with self._lock, translated(self.path):
            return int(self._execute_locked(self.writer(), "PRAGMA data_version").fetchone()[0])

    def writer(self) -> sqlite3.Connection:
        self._after_fork()
        self._check_file()
        if self._writer is None:
            self._writer = self._open()
            self._writer.execute(f"PRAGMA busy_timeout = {int(_POLL_INTERVAL * 1000)}")
        return self._writer

    def close(self) -> None:
        """Close all connections; one that is lent for reading is closed when it comes back."""
        with self._lock:
            writer, self._writer = self._writer, None
            readers, self._readers = self._readers, []
            self._file = None
            if self._pid != os.getpid():
                return
            if writer is not None:
                writer.close()
            with suppress(IndexError):
                while True:  # another thread may take one at this moment: each belongs to who takes it
                    readers.pop().close()

    def _execute_locked(self, connection: sqlite3.Connection, sql: str, given: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Execute a statement that needs the write lock; wait for the lock until the timeout."""
        give_up = time.monotonic() + _LOCK_TIMEOUT
        for polls in itertools.count():
            try:
                return connection.execute(sql, given)
            except sqlite3.OperationalError as error:
                if _primary(error) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) or time.monotonic() > give_up:
                    raise
            if polls > _FAST_POLLS:
                time.sleep(_SLOW_POLL_INTERVAL)
        raise AssertionError("it gives up before")

    def _check_file(self) -> None:
        """Raise StoreMoved if the path no longer names the file that the connections have open.

        SQLite keeps writing to a file that was deleted or moved, and those writes are lost. The inode of an open file
        is not reused, so a new file at the same path has another inode.
        """
        known = self._file  # another thread may close the connections
        if known is None:
            return
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            raise StoreMoved(
                f"{self.path}: the database file was deleted or moved while it was in use",
                fix=("stop all processes that use it, put the file back (or restore a backup), and start them again"),
            ) from None
        except OSError:
            return  # the folder can't be read; SQLite will report the cause
        if (found.st_dev, found.st_ino) != known:
            raise StoreMoved(
                f"{self.path}: the database file was replaced by another file while it was in use",
                fix="start all processes that use it again, so that they open the new one",
            )

    def _reader(self) -> sqlite3.Connection:
        self._after_fork()
        self._check_file()
        try:
            return self._readers.pop()
        except IndexError:
            return self._open()

    def _after_fork(self) -> None:
        # SQLite connections don't survive a fork: their file locks belong to the parent.
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._writer = None
            self._readers = []
            self._file = None

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=_READER_TIMEOUT, isolation_level=None, check_same_thread=False, cached_statements=256
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
        # The switch needs exclusive access and ignores the busy timeout, so processes that start together must retry.
        give_up = time.monotonic() + _LOCK_TIMEOUT
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
    """Translate driver exceptions; with `callers`, a lock conflict becomes RetryTransaction."""
    try:
        yield
    except (sqlite3.Error, OverflowError) as error:
        raise _translate(error, path, callers) from error


def _translate(error: sqlite3.Error | OverflowError, path: Path | str, callers: bool) -> StoreError:
    code = _primary(error)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        if callers:
            return RetryTransaction(
                f"{path}: another connection writes",
                fix=("roll back and run the transaction again, beginning it with BEGIN IMMEDIATE"),
            )
        return StoreUnavailable(
            f"{path}: another process has held the write lock for {_LOCK_TIMEOUT:.0f} s",
            fix="find the process and end its transaction",
        )
    if code == sqlite3.SQLITE_FULL:
        return StoreFull(f"{path}: the disk is full")
    if code == sqlite3.SQLITE_READONLY:
        return StoreReadOnly(f"{path}: the file or its folder can't be written", fix="check owner and mode")
    if code == sqlite3.SQLITE_CANTOPEN:
        return StoreUnavailable(f"{path}: can't be opened", fix="check that its folder exists and may be written")
    if code == sqlite3.SQLITE_NOTADB:
        return StoreError(f"{path}: is not an SQLite database")
    if code == sqlite3.SQLITE_CORRUPT:
        return StoreError(f"{path}: the database is damaged ({error})", fix="restore a backup")
    if code == sqlite3.SQLITE_IOERR:
        return StoreUnavailable(f"{path}: input or output failed ({error})", fix="check the disk")
    if isinstance(error, OverflowError) or code in (sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH):
        return RowRefused(f"{path}: {error}")
    if str(error).startswith(_NOT_UTF8):
        return RowRefused(f"{path}: the text of some row is not UTF-8", fix="run: onerow doctor")
    return StoreError(f"{path}: {error}")


def _primary(error: Exception) -> int:
    """Return the primary error code: the low byte of the extended one."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
