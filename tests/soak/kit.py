"""Database servers that a soak may restart."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.servers.mongo import MongoServer
from tests.servers.postgres import PostgresServer


class CrashingPostgres:
    """Restarts PostgreSQL with an immediate shutdown, which is followed by recovery."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server

    def restart(self) -> None:
        self._server.stop("immediate")
        self._server.start()


class CrashingMongo:
    """Restarts MongoDB with SIGKILL."""

    def __init__(self, server: MongoServer) -> None:
        self._server = server

    def restart(self) -> None:
        self._server.kill()
        self._server.start()


Crashing = CrashingPostgres | CrashingMongo
SERVERS = ("postgres", "mongo")


@contextmanager
def own_server(kind: str) -> Iterator[tuple[str, Crashing]]:
    """Start a server; give the URL of a new database and the way to restart the server."""
    server = PostgresServer() if kind == "postgres" else MongoServer()
    try:
        yield server.fresh_database(), crashing(server)
    finally:
        server.close()


def crashing(server: PostgresServer | MongoServer) -> Crashing:
    return CrashingPostgres(server) if isinstance(server, PostgresServer) else CrashingMongo(server)
