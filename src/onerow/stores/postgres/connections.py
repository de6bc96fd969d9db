"""Connection pool for one PostgreSQL database."""

import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import psycopg
from psycopg import pq
from psycopg.adapt import AdaptersMap

from onerow.core.errors import OnerowError, RetryTransaction, StoreUnavailable
from onerow.stores.postgres.connection_url import Address
from onerow.stores.postgres.driver_errors import CONNECTION_ENDED, sqlstate, store_error
from onerow.stores.postgres.fast.binary import register_adapters, unix_time
from onerow.stores.postgres.pipelining import Connection, Transaction, one_send
from onerow.stores.shared.server_clock import ServerClock

T = TypeVar("T")

_MAX_ATTEMPTS = 8
_IDLE = pq.TransactionStatus.IDLE
_ADAPTERS = AdaptersMap(psycopg.adapters)
register_adapters(_ADAPTERS)


class Connections:
    """A connection pool: opens connections on demand, keeps them, and never reuses a broken one."""

    def __init__(self, address: Address, *, size: int, patience: float) -> None:
        self.address = address
        self.clock = ServerClock(self._ask_time)
        self._size = size
        self._patience = patience
        self._prepare: bool | None = address.prepare
        self._connection_type: type[Connection] = Connection
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._permits: SimpleQueue[None] = SimpleQueue()  # a semaphore; SimpleQueue is implemented in C
        for _ in range(self._size):
            self._permits.put(None)
        self._idle: list[Connection] = []
        self._close_count = 0

    def connection(self, *, retried: bool = False) -> AbstractContextManager[Connection]:
        """Check out a connection in autocommit mode for one operation; an open transaction is rolled back at the end.

        `retried`: after a deadlock or another failure that a new transaction avoids, end the block without an exception.
        """
        if self._pid != os.getpid():
            self._reset()  # after a fork, two processes must not share a socket
        try:
            self._permits.get(timeout=self._patience)
        except Empty:
            raise StoreUnavailable(
                f"{self.address.masked}: all {self._size} connections have been busy for {self._patience:.0f} s",
                fix="allow more with pool_size, or find out what holds them",
            ) from None
        return _Checkout(self, self._permits, retried=retried)

    def spare(self) -> AbstractContextManager[Connection | None]:
        """Check out a second connection for the same operation; None if that would block."""
        try:
            self._permits.get_nowait()
        except Empty:
            return nullcontext()
        return _Checkout(self, self._permits)

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run read-only work; run it once more if the connection was dead."""
        try:
            with self.connection() as connection:
                return work(connection)
        except StoreUnavailable as error:
            state = sqlstate(error.__cause__)
            if error.__cause__ is None or (state and state not in CONNECTION_ENDED):
                raise  # the server refused, or no connection was free
            with self.connection() as connection:
                return work(connection)

    def write(self, work: Callable[[Connection], T]) -> T:
        """Run work that writes; retry it as `attempts` does."""
        for attempt in self.attempts():
            with attempt as connection:
                return work(connection)
        raise AssertionError

    def attempts(self) -> Iterator[AbstractContextManager[Connection]]:
        """Yield a connection for each attempt at one write; leave the loop after the attempt that succeeds.

        After a deadlock, a serialization failure or a slot collision the loop continues; the last attempt raises it.
        """
        for attempt in range(_MAX_ATTEMPTS - 1):
            yield self.connection(retried=True)
            time.sleep(0.002 * 2**attempt)
        yield self.connection()

    @contextmanager
    def transaction(self, connection: Connection, *, left: int = 0) -> Iterator[Transaction]:
        """Run a transaction in one round trip; `left`: how many tasks its claims may take."""
        sent_at = time.monotonic()
        with one_send(connection) as pipeline:
            transaction = Transaction(connection, pipeline, left)
            yield transaction
            transaction.commit()
        ((server_time, *_),) = transaction.began.fetchall()
        self.clock.observe(unix_time(server_time), sent_at)

    def open(self) -> Connection:
        """Open a new connection in autocommit mode; the caller closes it."""
        try:
            connection = self._connection_type.connect(
                self.address.conninfo, autocommit=True, context=_AdapterContext(), **self.address.defaults
            )
            if self._prepare is None:
                # A pooler reports its own process id. Behind a pooler, sessions are shared, so that prepared statements
                # would collide.
                asked = connection.execute("SELECT pg_backend_pid()").fetchone()
                self._prepare = asked == (connection.info.backend_pid,)
            connection.prepare_threshold = 1 if self._prepare else None
            connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED  # overrides the role's default
            return connection
        except psycopg.Error as error:
            raise store_error(error, self.address.masked) from error

    @property
    def is_pooled(self) -> bool:
        """Whether a pooler is between client and server, so that session state is unreliable."""
        if self._prepare is None:
            with self.connection():
                pass
        return not self._prepare

    def count_statements(self) -> Callable[[], int]:
        """Start counting sent statements, without BEGIN and COMMIT; return the counter."""
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

        self._connection_type = CountingConnection
        self.close()
        return lambda: seen

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
            self._close_count += 1
        if self._pid == os.getpid():
            for connection in idle:
                connection.close()

    def _ask_time(self) -> float:
        ((server_time,),) = self.read(lambda c: c.execute("SELECT clock_timestamp()", binary=True).fetchall())
        return unix_time(server_time)

    def _take(self) -> Connection:
        while True:
            with self._lock:
                if not self._idle:
                    break
                connection = self._idle.pop()  # the most recently used connection has the warmest caches
            if connection.is_alive:
                return connection
            connection.close()
        return self.open()

    def _give_back(self, connection: Connection, close_count: int) -> None:
        with self._lock:
            is_idle = connection.pgconn.transaction_status == _IDLE and not connection.has_lost_statements
            if close_count == self._close_count and is_idle:
                self._idle.append(connection)
                return
        connection.close()


class _Checkout:
    """A checked-out connection and its permit; translates driver exceptions into StoreError."""

    def __init__(self, pool: Connections, permits: SimpleQueue[None], *, retried: bool = False) -> None:
        self._pool = pool
        self._permits = permits
        self._retried = retried

    def __enter__(self) -> Connection:
        try:
            self._close_count = self._pool._close_count
            self._connection = self._pool._take()
        except BaseException:
            self._permits.put(None)
            raise
        return self._connection

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        try:
            if error is not None:
                _roll_back(self._connection)
                if not isinstance(error, psycopg.Error | OnerowError):
                    self._connection.close()  # it may be in the middle of a statement
            self._pool._give_back(self._connection, self._close_count)
        finally:
            self._permits.put(None)
        if not isinstance(error, psycopg.Error | struct.error):
            return self._retried and isinstance(error, RetryTransaction)
        translated = store_error(error, self._pool.address.masked)
        if self._retried and isinstance(translated, RetryTransaction):
            return True
        raise translated from error


class _AdapterContext:
    """The adapt context that psycopg expects: adapters without a connection."""

    adapters = _ADAPTERS
    connection = None


def _roll_back(connection: Connection) -> None:
    try:
        if not connection.closed and connection.pgconn.transaction_status != _IDLE:
            connection.rollback()
    except psycopg.Error:
        connection.close()
