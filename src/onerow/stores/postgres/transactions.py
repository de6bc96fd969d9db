"""Transactions that are sent in one pipeline, with the planner settings that our statements need."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from onerow.stores.postgres.connections import Connection, one_send
from onerow.stores.postgres.fast.binary import unix_time
from onerow.stores.postgres.statements import statement
from onerow.stores.shared.server_clock import ServerClock


class Transactions:
    """Begins transactions, and reads the server's clock from each."""

    def __init__(self, schema: str, clock: ServerClock) -> None:
        self._schema = schema
        self._clock = clock

    @contextmanager
    def __call__(
        self, connection: Connection, *, piecewise: bool = False, left: int = 0
    ) -> Iterator[Callable[[], None]]:
        """Run a transaction in one round trip, so that no lock is held while the server waits for the client.

        `piecewise`: wait for each answer before the next statement is sent. `left`: how many tasks its claims may take.
        Yields a function that adds COMMIT and sends everything before the end of the block.
        """
        sent_at = time.monotonic()
        sent = False
        with nullcontext(_already_sent) if piecewise else one_send(connection) as send:
            connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
            begin = connection.execute(statement("begin", self._schema), {"left": str(left)}, binary=True)

            def commit() -> None:
                nonlocal sent
                sent = True
                connection.execute("COMMIT")
                send()

            yield commit
            if not sent:
                connection.execute("COMMIT")
        ((server_time, *_),) = begin.fetchall()
        self._clock.observe(unix_time(server_time), sent_at)


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


def _already_sent() -> None:
    """Do nothing: piecewise statements were sent already."""
