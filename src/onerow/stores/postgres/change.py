"""Changes that commands make to the database: each is one transaction that waits for locks only briefly."""

from collections.abc import Callable
from typing import TypeVar

import psycopg
from psycopg import errors

from onerow.core.errors import BadInput, StoreUnavailable
from onerow.stores.postgres.connections import Connections
from onerow.stores.postgres.pipelining import Connection

T = TypeVar("T")

_LOCK_FOR = "10s"


def change(connections: Connections, work: Callable[[Connection], T], what: str) -> T:
    """Run `work` in a transaction; raise BadInput if this role may not do it. `what` completes 'this role may not …'."""

    def run(connection: Connection) -> T:
        try:
            with connection.transaction():
                # Others that use the table wait behind this transaction, which must not wait long itself.
                connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_FOR}'")
                return work(connection)
        except errors.InsufficientPrivilege as error:
            raise BadInput(
                f"this role may not {what}: {first_line(error)}",
                fix="connect as the owner of the tables",
                field="store",
            ) from None
        except errors.LockNotAvailable as error:
            raise StoreUnavailable(
                f"{connections.address.masked}: {first_line(error)}; nothing was changed",
                fix=f"another transaction used the table for more than {_LOCK_FOR}: try again when it has ended",
            ) from None

    return connections.write(run)


def first_line(error: psycopg.Error) -> str:
    return str(error).strip().partition("\n")[0]
