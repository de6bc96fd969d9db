"""Runs one prepared statement through libpq, without psycopg's cursor.

Used to insert a single task, while user code waits. The Python code of a cursor around that statement took as long as
the server's work.
"""

from collections.abc import Sequence
from itertools import repeat

from psycopg import errors, pq
from psycopg.generators import execute
from psycopg.pq.abc import PGresult

from onerow.stores.postgres.connections import Connection

_BINARY = pq.Format.BINARY
_FAILED = pq.ExecStatus.FATAL_ERROR
_MAX_PREPARED = 100
"""Maximum number of prepared statements per connection."""


def run(connection: Connection, sql: str, given: Sequence[bytes]) -> None:
    """Run a statement with parameters $1, $2 … in binary format; it is prepared once per text."""
    if connection.sending is not None:
        connection.sending(sql)
    formats = list(repeat(_BINARY, len(given)))
    name = connection.prepared.get(sql) or _prepared(connection, sql)
    if name is None:
        connection.pgconn.send_query_params(sql.encode(), given, param_formats=formats)
    else:
        connection.pgconn.send_query_prepared(name, given, formats)
    _finish(connection)


def _prepared(connection: Connection, sql: str) -> bytes | None:
    if connection.prepare_threshold is None or len(connection.prepared) == _MAX_PREPARED:
        return None
    name = b"onerow_%d" % len(connection.prepared)
    connection.pgconn.send_prepare(name, sql.encode())
    _finish(connection)
    connection.prepared[sql] = name
    return name


def _finish(connection: Connection) -> None:
    results: list[PGresult] = connection.wait(execute(connection.pgconn))
    if results[-1].status == _FAILED:
        raise errors.error_from_result(results[-1], connection.info.encoding)
