"""Transactions that are sent in one piece, with the settings that our statements want."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from onerow.stores.postgres.clock import ServerClock
from onerow.stores.postgres.connections import Connection, in_one_piece
from onerow.stores.postgres.statements import statement


class Transactions:
    """Begins transactions, and hears from each what time it is."""

    def __init__(self, schema: str, clock: ServerClock) -> None:
        self._schema = schema
        self._clock = clock

    @contextmanager
    def __call__(
        self, connection: Connection, *, piecewise: bool = False, left: int = 0
    ) -> Iterator[Callable[[], None]]:
        """A transaction whose statements are sent together: one round trip, and no lock that waits for us.

        `piecewise`: each is answered before the next is sent, for the rare case where that must be known. `left`: how
        many tasks its claims may take. It yields what sends them, COMMIT included, before the block's end.
        """
        sent_at = time.monotonic()
        sent = False
        with nullcontext(_nothing) if piecewise else in_one_piece(connection) as send:
            connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
            began = connection.execute(statement("begin", self._schema), {"left": str(left)}, binary=True)

            def commit() -> None:
                nonlocal sent
                sent = True
                connection.execute("COMMIT")
                send()

            yield commit
            if not sent:
                connection.execute("COMMIT")
        ((said, *_),) = began.fetchall()
        self._clock.heard(said, sent_at)


@contextmanager
def looking(connection: Connection) -> Iterator[None]:
    """A transaction that only reads, sent in one piece; each of its statements goes through an index.

    A table that has just been filled has no statistics, and without them the planner would rather read all of it, each
    second, for every worker.
    """
    with in_one_piece(connection):
        connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY")
        connection.execute("SET LOCAL enable_seqscan = off")
        connection.execute("SET LOCAL enable_bitmapscan = off")
        yield
        connection.execute("COMMIT")


def _nothing() -> None:
    """There is nothing to send: it was sent already."""
