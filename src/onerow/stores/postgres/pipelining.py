"""Transactions that are buffered and sent in one piece, so that the server does not wait for a client that holds a lock.

psycopg's own pipeline sends each statement immediately. A client that is paused in between (SIGSTOP, CPU starvation)
would leave a transaction open, with locks that block other clients.
"""

import select
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any

import psycopg
from psycopg.abc import PQGen
from psycopg.generators import send as flush
from psycopg.rows import TupleRow

from onerow.stores.postgres.statements import statement

Cursor = psycopg.Cursor[TupleRow]
Queued = tuple[Any, Any]
"""A call that buffers a message in libpq, and where psycopg puts its result."""

BUFFER = 8192
"""libpq sends by itself when this number of bytes is buffered."""
_COMMIT_SIZE = 100  # bytes of COMMIT and Sync, at most

PSYCOPG_INTERNALS = (
    "psycopg.Connection._deallocate",
    "psycopg.Pipeline._communicate_gen",
    "psycopg.Pipeline._enqueue_sync",
    "psycopg.Pipeline.command_queue",
    "psycopg.Pipeline.result_queue",
    "psycopg.generators.send",
    "psycopg.generators.execute",
    "psycopg.errors.error_from_result",
)
"""All undocumented names of psycopg that this store uses, here and in fast/insert_new.py."""


class Connection(psycopg.Connection[TupleRow]):
    """A connection that also records the statements which fast/insert_new.py has prepared in it."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.prepared: dict[str, bytes] = {}
        self.sending: Callable[[object], None] | None = None  # called for statements that no cursor sends
        self.can_copy = True  # False: the server refuses COPY into the tables
        self.has_lost_statements = False  # psycopg may take a statement for prepared that was never sent
        self._hang_up = select.poll()
        self._hang_up.register(self.fileno(), select.POLLIN)

    def _deallocate(self, name: bytes | None) -> PQGen[None]:
        if name is None:  # DEALLOCATE ALL, which psycopg sends after each rollback
            self.prepared.clear()
        return super()._deallocate(name)

    @property
    def is_alive(self) -> bool:
        """Whether the server has not closed the connection: an idle connection becomes readable only when it ends."""
        return not self.closed and not self._hang_up.poll(0)


class Transaction:
    """A transaction whose statements are buffered in a pipeline of `one_send`.

    A lock that other clients wait for is sent in one piece with all that follows until COMMIT. If that does not fit into
    libpq's buffer together with what precedes the lock, the latter is committed first, as a transaction of its own.
    """

    def __init__(self, connection: Connection, pipeline: psycopg.Pipeline, left: int) -> None:
        self._connection = connection
        self._pipeline = pipeline
        self._left = str(left)
        self._first_commit: Cursor | None = None
        self._is_ended = False
        self.began = _begin(connection, self._left)
        self._begun = len(pipeline.command_queue)
        self._begin_size = 0
        self._lock_at: int | None = None  # position in the pipeline
        self._locked_size = 0

    @property
    def is_first_part_committed(self) -> bool:
        """Whether what precedes the lock was committed, as a transaction of its own."""
        return self._first_commit is not None and self._first_commit.statusmessage == "COMMIT"

    def lock(self, sql: str, given: Mapping[str, Any]) -> None:
        """Take a lock that other clients wait for, until the end of the transaction."""
        self._lock_at = len(self._pipeline.command_queue)
        self._begin_size = self._size_from(0, self._begun)
        self._connection.execute(sql, given, prepare=True)
        self._locked_size = self._begin_size + self._size_from(self._lock_at) + _COMMIT_SIZE

    def claim(self, sql: str, given: Mapping[str, Any], *, is_first: bool) -> Cursor | None:
        """Add a claim; return None, with nothing added, if it would not fit into one piece with the lock."""
        start = len(self._pipeline.command_queue)
        cursor = self._connection.execute(sql, given, prepare=True, binary=True)
        if self._lock_at is not None:
            self._locked_size += self._size_from(start)
            if self._locked_size >= BUFFER and not is_first:
                self._put(filter(_prepares, self._take(start)))
                return None
        return cursor

    def commit(self) -> None:
        if self._is_ended:
            return
        self._is_ended = True
        self._connection.execute("COMMIT", prepare=True)
        if self._lock_at is not None and self._size_from(0, texts=True) + _COMMIT_SIZE >= BUFFER:
            self._divide(self._lock_at)

    def send(self) -> None:
        """Commit, and send everything before the end of the block."""
        self.commit()
        self._pipeline._enqueue_sync()
        _buffer_commands(self._pipeline)
        self._flush()

    def _divide(self, lock_at: int) -> None:
        """Send the texts of statements first, then what precedes the lock, then the rest in one piece."""
        locked, first = self._take(lock_at), self._take(0)
        if texts := [queued for queued in first + locked if _prepares(queued)]:
            self._put(texts)
            self._pipeline.command_queue.append(self._flush)
        first, locked = ([queued for queued in part if not _prepares(queued)] for part in (first, locked))
        self._put(first)
        if self._begin_size < _size(first) and _size(first + locked) + _COMMIT_SIZE >= BUFFER:
            self._first_commit = self._connection.execute("COMMIT", prepare=True)
            self._pipeline.command_queue.append(self._flush)
            _begin(self._connection, self._left)
        if self._locked_size >= BUFFER:
            # A single claim is larger than the buffer. After a Sync, the server limits how long it waits for the client.
            self._connection.execute("SET LOCAL idle_in_transaction_session_timeout = '2s'", prepare=True)
            self._put(locked[:1])
            self._pipeline._enqueue_sync()
            self._pipeline.command_queue.append(self._flush)
            locked = locked[1:]
        self._put(locked)

    def _flush(self) -> None:
        self._connection.wait(flush(self._connection.pgconn))

    def _take(self, start: int) -> list[Queued]:
        """Remove what is in the pipeline from this position on."""
        commands, results = self._pipeline.command_queue, self._pipeline.result_queue
        return [(commands.pop(), results.pop()) for _ in range(len(commands) - start)][::-1]

    def _put(self, queued: Iterable[Queued]) -> None:
        for command, result in queued:
            self._pipeline.command_queue.append(command)
            self._pipeline.result_queue.append(result)

    def _size_from(self, start: int, stop: int | None = None, *, texts: bool = False) -> int:
        """Return how many bytes are in the pipeline between these positions; `texts`: with those of prepared statements."""
        queued = [(command, None) for command in islice(self._pipeline.command_queue, start, stop)]
        return _size(each for each in queued if texts or not _prepares(each))


@contextmanager
def stepwise_transaction(connection: Connection) -> Iterator[None]:
    """Run a transaction in which each statement is answered before the next one is sent."""
    _begin(connection)
    yield
    connection.execute("COMMIT")


def _begin(connection: Connection, left: str = "0") -> Cursor:
    connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE", prepare=True)
    return connection.execute(statement("begin", ""), {"left": left}, prepare=True, binary=True)


def _prepares(queued: Queued) -> bool:
    return isinstance(queued[0], partial) and queued[0].func.__name__ == "send_prepare"


def _size(queued: Iterable[Queued]) -> int:
    """Return how many bytes libpq buffers for these commands, at most."""
    size = 0
    for command, _ in queued:
        size += 41  # Parse, Bind, Describe, Execute
        for given in getattr(command, "args", ()):
            if isinstance(given, bytes):  # the name or the text of a statement
                size += len(given)
            elif given:  # each value has a type, a format and a length
                size += sum(10 + len(value or b"") for value in given)
    return size


@contextmanager
def one_send(connection: Connection) -> Iterator[psycopg.Pipeline]:
    """Buffer all statements of the block; they are sent at its end."""
    with connection.pipeline() as pipeline:
        pipeline._communicate_gen = _send_later  # type: ignore[method-assign]
        try:
            yield pipeline
            _buffer_commands(pipeline)  # leaves only the Sync that psycopg adds at the end of the pipeline
        except BaseException:
            if pipeline.command_queue:
                connection.has_lost_statements = True
                for _ in range(min(len(pipeline.command_queue), len(pipeline.result_queue))):
                    pipeline.result_queue.pop()
                pipeline.command_queue.clear()
            raise
        finally:
            del pipeline._communicate_gen


def _buffer_commands(pipeline: psycopg.Pipeline) -> None:
    while pipeline.command_queue:
        pipeline.command_queue.popleft()()


def _send_later() -> Any:
    yield from ()


@contextmanager
def read_transaction(connection: Connection) -> Iterator[None]:
    """Run a read-only transaction in one round trip, with sequential and bitmap scans disabled.

    A table that has just been filled has no statistics. Without them the planner would choose a sequential scan, each
    second, for every worker.
    """
    with one_send(connection):
        connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY")
        connection.execute("SET LOCAL enable_seqscan = off")
        connection.execute("SET LOCAL enable_bitmapscan = off")
        yield
        connection.execute("COMMIT")
