"""Connections to one PostgreSQL database, and the one door at which the driver's exceptions become ours."""

import os
import select
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import psycopg
from psycopg import errors, pq
from psycopg.adapt import AdaptersMap
from psycopg.generators import send as flush
from psycopg.rows import TupleRow

from onerow.core.errors import (
    OnerowError,
    RetryTransaction,
    RowRefused,
    SchemaMissing,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from onerow.stores.postgres.connection_url import Address
from onerow.stores.postgres.fast.binary import teach

Cursor = psycopg.Cursor[TupleRow]
T = TypeVar("T")

_TRIES = 8
_IDLE = pq.TransactionStatus.IDLE
_ADAPTERS = AdaptersMap(psycopg.adapters)
teach(_ADAPTERS)


class Connection(psycopg.Connection[TupleRow]):
    """One of ours, which also knows what `straight` has prepared in it."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.prepared: dict[str, bytes] = {}
        self.sending: Callable[[object], None] | None = None  # hears of statements that no cursor sends
        self._hangup = select.poll()
        self._hangup.register(self.fileno(), select.POLLIN)

    @property
    def is_alive(self) -> bool:
        """Whether the server hasn't hung up: an idle connection that has something to say has come to its end."""
        return not self.closed and not self._hangup.poll(0)


class Connections:
    """A few connections, opened when needed and kept; a connection that broke is not given out again."""

    def __init__(self, address: Address, *, size: int, patience: float) -> None:
        self.address = address
        self._size = size
        self._patience = patience
        self._prepare: bool | None = address.prepare
        self._connections: type[Connection] = Connection
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._places: SimpleQueue[None] = SimpleQueue()  # a semaphore, but in C
        for _ in range(self._size):
            self._places.put(None)
        self._idle: list[Connection] = []
        self._closings = 0

    def connection(self) -> AbstractContextManager[Connection]:
        """A connection for one act, in autocommit; whatever transaction is left open is rolled back."""
        if self._pid != os.getpid():
            self._reset()  # a connection must not cross a fork: two processes would talk into one another
        try:
            self._places.get(timeout=self._patience)
        except Empty:
            raise StoreUnavailable(
                f"{self.address.masked}: all {self._size} connections have been busy for {self._patience:.0f} s; "
                f"allow more with pool_size, or find out what holds them"
            ) from None
        return _Loan(self, self._places)

    def spare(self) -> AbstractContextManager[Connection | None]:
        """A second connection for an act that has one already; None when that would mean to wait."""
        try:
            self._places.get_nowait()
        except Empty:
            return nullcontext()
        return _Loan(self, self._places)

    def read(self, work: Callable[[Connection], T]) -> T:
        """Do something that changes nothing, and do it again if the connection turned out to be dead."""
        try:
            with self.connection() as connection:
                return work(connection)
        except StoreUnavailable as error:
            state = sqlstate(error.__cause__)
            if error.__cause__ is None or (state and state not in _HUNG_UP):
                raise  # the server itself said no, or no connection was free
            with self.connection() as connection:
                return work(connection)

    def write(self, work: Callable[[Connection], T]) -> T:
        """Do something in a transaction of ours, and again when the server picked it to give way to another."""
        for attempt in range(_TRIES):
            try:
                with self.connection() as connection:
                    return work(connection)
            except RetryTransaction:
                if attempt == _TRIES - 1:
                    raise
                time.sleep(0.002 * 2**attempt)
        raise AssertionError

    def open(self) -> Connection:
        """A new connection in autocommit, which the caller closes."""
        try:
            connection = self._connections.connect(
                self.address.conninfo, autocommit=True, context=_Taught(), **self.address.defaults
            )
            if self._prepare is None:
                # A pooler answers with a process id of its own. Behind one a session isn't ours, and neither are the
                # statements prepared in it.
                asked = connection.execute("SELECT pg_backend_pid()").fetchone()
                self._prepare = asked == (connection.info.backend_pid,)
            connection.prepare_threshold = 1 if self._prepare else None
            connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED  # whatever the role's default is
            return connection
        except psycopg.Error as error:
            raise ours(error, self.address.masked) from error

    @property
    def is_pooled(self) -> bool:
        """Whether a pooler stands between us and the server, so that what belongs to a session can't be relied on."""
        if self._prepare is None:
            with self.connection():
                pass
        return not self._prepare

    def count_statements(self) -> Callable[[], int]:
        """A counter of the statements sent from now on, BEGIN and COMMIT aside."""
        seen = 0

        def count(query: object) -> None:
            nonlocal seen
            seen += not str(query).startswith(("BEGIN", "COMMIT"))

        class CountingCursor(psycopg.Cursor[Any]):
            def execute(self, query: Any, *given: Any, **more: Any) -> Any:
                count(query)
                return super().execute(query, *given, **more)

        class CountingConnection(Connection):
            def __init__(self, *given: Any, **more: Any) -> None:
                super().__init__(*given, **more)
                self.cursor_factory = CountingCursor
                self.sending = count

        self._connections = CountingConnection
        self.close()
        return lambda: seen

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
            self._closings += 1
        if self._pid == os.getpid():
            for connection in idle:
                connection.close()

    def _take(self) -> Connection:
        while True:
            with self._lock:
                if not self._idle:
                    break
                connection = self._idle.pop()  # the last one used is the likeliest to be warm
            if connection.is_alive:
                return connection
            connection.close()
        return self.open()

    def _give_back(self, connection: Connection, closings: int) -> None:
        with self._lock:
            if closings == self._closings and connection.pgconn.transaction_status == _IDLE:
                self._idle.append(connection)
                return
        connection.close()


class _Loan:
    """A connection for one act and its place in the door; driver exceptions that pass become ours."""

    def __init__(self, door: Connections, places: SimpleQueue[None]) -> None:
        self._door = door
        self._places = places

    def __enter__(self) -> Connection:
        try:
            self._closings = self._door._closings
            self._connection = self._door._take()
        except BaseException:
            self._places.put(None)
            raise
        return self._connection

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is not None:
                _restore(self._connection)
                if not isinstance(error, psycopg.Error | OnerowError):
                    self._connection.close()  # statements may have been put together that were never sent
            self._door._give_back(self._connection, self._closings)
        finally:
            self._places.put(None)
        if isinstance(error, psycopg.Error | struct.error):
            raise ours(error, self._door.address.masked) from error


@contextmanager
def in_one_piece(connection: Connection) -> Iterator[Callable[[], None]]:
    """What is executed inside is sent together, at the end or when what this yields is called; answered at the end.

    psycopg's own pipeline sends each statement as it comes. A client that is stopped in between (SIGSTOP, a starved
    machine) would leave a transaction open, with locks that others wait for.
    """
    with connection.pipeline() as pipeline:
        pipeline._communicate_gen = _say_nothing  # type: ignore[method-assign]
        sent = False

        def send() -> None:
            nonlocal sent
            sent = True
            pipeline._enqueue_sync()
            _into_the_buffer(pipeline)
            connection.wait(flush(connection.pgconn))

        try:
            yield send
            _into_the_buffer(pipeline)  # which leaves us with the Sync that follows
        except BaseException:
            if not sent:
                pipeline.command_queue.clear()
                pipeline.result_queue.clear()
            raise
        finally:
            del pipeline._communicate_gen


def _into_the_buffer(pipeline: psycopg.Pipeline) -> None:
    while pipeline.command_queue:
        pipeline.command_queue.popleft()()


def _say_nothing() -> Any:
    yield from ()


class _Taught:
    """What psycopg takes for a context: adapters, and no connection."""

    adapters = _ADAPTERS
    connection = None


def _restore(connection: Connection) -> None:
    try:
        if not connection.closed and connection.pgconn.transaction_status != _IDLE:
            connection.rollback()
    except psycopg.Error:
        connection.close()


_RETRIED = {"40001", "40P01"}
_READ_ONLY = {"25006", "42501"}
_MISSING = {"42P01", "3F000", "42883", "42703"}
_REFUSED = {"23502", "23514"}  # NOT NULL, CHECK
_FULL = {"53100", "53400"}
_HUNG_UP = {"57P01", "57P02", "08003", "08006"}  # the server ended this connection; another may be had at once
_TOO_LONG = "54000"


def ours(error: BaseException, where: str) -> StoreError:
    """The error of ours that a driver's stands for."""
    state = sqlstate(error)
    text = str(error).strip().partition("\n")[0]
    if state in _RETRIED:
        return RetryTransaction(f"{where}: {text}; roll back and run the transaction again")
    if state in _MISSING:
        return SchemaMissing(f"{where}: {text}; the tables are missing or older than this code: run onerow migrate")
    if state in _READ_ONLY or (state == "0A000" and "recovery" in text):  # a standby refuses READ WRITE as unsupported
        reads = (
            "this role may only read" if state == "42501" else "this server is a standby or read-only: name the primary"
        )
        return StoreReadOnly(f"{where}: {text}; {reads}")
    if state in _FULL:
        return StoreFull(f"{where}: {text}; make room, nothing was lost")
    if state == _TOO_LONG:
        return StoreError(f"{where}: {text}; shorten the key: unique keys, user ids and limit keys are indexed")
    if state == "57014":
        return StoreUnavailable(f"{where}: {text}; the statement took longer than its timeout allows")
    if isinstance(error, struct.error) or state[:2] == "22" or state in _REFUSED:
        return RowRefused(f"{where}: {text}")
    if state[:2] in ("08", "53", "57", "58") or (not state and isinstance(error, psycopg.OperationalError)):
        return StoreUnavailable(f"{where}: {text}")
    return StoreError(f"{where}: {text}")


def sqlstate(error: BaseException | None) -> str:
    """The server's code, wherever a driver or a library around it keeps it; '' for an error of the client's own."""
    while error is not None:
        for name in ("sqlstate", "pgcode"):
            if isinstance(state := getattr(error, name, None), str):
                return state
        error = getattr(error, "orig", None) or error.__cause__
    return ""


def violates(error: StoreError, *indexes: str) -> bool:
    """Whether the error came from one of these unique indexes."""
    cause: Any = error.__cause__
    return isinstance(cause, errors.UniqueViolation) and cause.diag.constraint_name in indexes
