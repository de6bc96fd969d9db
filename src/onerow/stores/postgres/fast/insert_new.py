"""Inserts new tasks that cannot conflict: their id was generated here, and they have no unique key.

One task is a plain INSERT through libpq, without psycopg's cursor, whose Python code took as long as the server's work.
Many tasks are a COPY. Both are faster than INSERT … ON CONFLICT.
"""

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import Any

from psycopg import errors, pq
from psycopg.generators import execute
from psycopg.pq.abc import PGresult

from onerow.core.task import COLUMN, Task, non_default_fields
from onerow.stores.postgres.fast.binary import ENCODE, cells
from onerow.stores.postgres.pipelining import Connection
from onerow.stores.postgres.rows import KINDS, NEW_FIELDS, varying_and_shared_fields
from onerow.stores.postgres.statements import quoted

CHUNK = 5_000
"""Rows per statement: enough to be fast, few enough to stay below a statement_timeout."""

_COPY_FROM = 20  # tasks; a COPY takes two round trips, so for fewer tasks one statement with arrays is as fast
# Tasks with a given id set token and version, so they are excluded here.
_FIELDS = NEW_FIELDS - {"token", "version", "unique_key", "unique_for", "held_key"}
_MAX_PREPARED = 100  # statements per connection
_HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END = b"\xff\xff"


def insert(connection: Connection, schema: str, tasks: Sequence[Task]) -> bool:
    """Insert all tasks; return False, with nothing inserted, if they can conflict or inserting.insert is as fast."""
    if 1 < len(tasks) < _COPY_FROM or (len(tasks) > 1 and not connection.can_copy):
        return False
    try:
        return _insert_one(connection, schema, tasks[0]) if len(tasks) == 1 else _copy(connection, schema, tasks)
    except errors.UniqueViolation:
        return False
    except errors.FeatureNotSupported:  # row-level security applies to this role: COPY checks no policies
        connection.can_copy = False
        return False


def _insert_one(connection: Connection, schema: str, task: Task) -> bool:
    given = non_default_fields(task)
    if not _FIELDS.issuperset(given):
        return False
    sql, encoders = _insert_sql(schema, tuple(given))
    _run_prepared(connection, sql, [encode(value) for encode, value in zip(encoders, given.values(), strict=True)])
    return True


def _copy(connection: Connection, schema: str, tasks: Sequence[Task]) -> bool:
    varying, shared = varying_and_shared_fields(tasks)
    if not _FIELDS.issuperset(varying) or not _FIELDS.issuperset(shared):
        return False
    sql = _copy_sql(schema, (*shared, *varying))
    prefix = struct.pack(">h", len(shared) + len(varying))
    prefix += b"".join(cells(KINDS[field], (value,))[0] for field, value in shared.items())
    rows = list(zip(repeat(prefix), *(cells(KINDS[field], values) for field, values in varying.items()), strict=False))
    if len(rows) <= CHUNK:
        _send(connection, sql, rows)
    else:
        with connection.transaction():
            for start in range(0, len(rows), CHUNK):
                _send(connection, sql, rows[start : start + CHUNK])
    return True


def _send(connection: Connection, sql: str, rows: Sequence[tuple[bytes, ...]]) -> None:
    if connection.sending is not None:
        connection.sending(sql)
    with connection.cursor() as cursor, cursor.copy(sql.encode()) as copy:
        copy.write(b"".join([_HEAD, *chain.from_iterable(rows), _END]))


def _run_prepared(connection: Connection, sql: str, given: Sequence[bytes]) -> None:
    """Run a statement with parameters $1, $2 … in binary format; it is prepared once per text."""
    if connection.sending is not None:
        connection.sending(sql)
    formats = [pq.Format.BINARY] * len(given)
    name = connection.prepared.get(sql) or _prepare(connection, sql)
    if name is None:
        connection.pgconn.send_query_params(sql.encode(), given, param_formats=formats)
    else:
        connection.pgconn.send_query_prepared(name, given, formats)
    _finish(connection)


def _prepare(connection: Connection, sql: str) -> bytes | None:
    if connection.prepare_threshold is None or len(connection.prepared) == _MAX_PREPARED:
        return None
    name = b"onerow_%d" % len(connection.prepared)
    connection.pgconn.send_prepare(name, sql.encode())
    _finish(connection)
    connection.prepared[sql] = name
    return name


def _finish(connection: Connection) -> None:
    results: list[PGresult] = connection.wait(execute(connection.pgconn))
    if results[-1].status == pq.ExecStatus.FATAL_ERROR:
        raise errors.error_from_result(results[-1], connection.info.encoding)


@lru_cache(maxsize=256)
def _insert_sql(schema: str, fields: tuple[str, ...]) -> tuple[str, list[Callable[[Any], bytes]]]:
    """Return the statement and the encoder for each field."""
    parameters = ", ".join(f"${number}" for number in range(1, len(fields) + 1))
    sql = f"INSERT INTO {quoted(schema)}.task_queue ({_columns(fields)}) VALUES ({parameters})"
    return sql, [ENCODE[KINDS[field]] for field in fields]


@lru_cache(maxsize=256)
def _copy_sql(schema: str, fields: tuple[str, ...]) -> str:
    return f"COPY {quoted(schema)}.task_queue ({_columns(fields)}) FROM STDIN (FORMAT binary)"


def _columns(fields: Sequence[str]) -> str:
    return ", ".join(COLUMN[field] for field in fields)
