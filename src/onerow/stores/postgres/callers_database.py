"""Checks that a caller's connection is to the queue's own database; once for each connection."""

from typing import Any
from weakref import WeakSet

from onerow.core.errors import BadInput
from onerow.stores.postgres.connections import Connections
from onerow.stores.postgres.statements import statement

IDENTITY = statement("database_identity", "")
"""Returns one text; its parameter {given} is a prefix of it."""


class CallersDatabase:
    """The identity of the queue's database, and the callers' connections that are known to be to it."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._own = ""
        self._verified: WeakSet[Any] = WeakSet()

    def is_verified(self, connection: Any) -> bool:
        try:
            return connection in self._verified
        except TypeError:  # it cannot be referenced weakly: ask each time
            return False

    def verify(self, connection: Any, identity: str) -> None:
        """Remember the connection if its database has the queue's identity, else raise BadInput."""
        if identity != self._own:
            self._own = self._read()  # read again each time, because the server may have been restarted or replaced
        if identity != self._own:
            raise BadInput(
                f"tx: this connection is to another database (named {identity.split('/', 2)[-1]!r}) than the queue's "
                f"{self._connections.address.masked}",
                fix="use a connection to the queue's own database",
                field="tx",
            )
        try:
            self._verified.add(connection)
        except TypeError:
            pass

    def _read(self) -> str:
        sql = IDENTITY.replace("{given}", "''").encode()
        ((identity,),) = self._connections.read(lambda connection: connection.execute(sql).fetchall())
        return str(identity)
