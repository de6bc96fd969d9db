"""Inserts new tasks that cannot conflict: their id was generated here, and they have no unique key.

One task is a plain INSERT, many tasks are a COPY; both are faster than INSERT … ON CONFLICT.
"""

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import Any

from psycopg import errors

from onerow.core.task import COLUMN, Task, non_default_fields
from onerow.stores.postgres.connections import Connection
from onerow.stores.postgres.fast import prepared
from onerow.stores.postgres.fast.binary import ENCODE, cells
from onerow.stores.postgres.rows import KINDS, NEW_FIELDS, varying_and_shared_fields
from onerow.stores.postgres.statements import quoted

CHUNK = 5_000
"""Rows per statement: enough to be fast, few enough to stay below a statement_timeout."""

_COPY_FROM = 20  # tasks; a COPY takes two round trips, so for fewer tasks one statement with arrays is as fast
# Tasks with a given id set token and version, so they are excluded here.
_FIELDS = NEW_FIELDS - {"token", "version", "unique_key", "unique_for", "held_key"}
_HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END = b"\xff\xff"


def insert(connection: Connection, schema: str, tasks: Sequence[Task]) -> bool:
    """Insert all tasks; return False, with nothing inserted, if they can conflict or inserting.insert is as fast."""
    if 1 < len(tasks) < _COPY_FROM:
        return False
    try:
        return _insert_one(connection, schema, tasks[0]) if len(tasks) == 1 else _copy(connection, schema, tasks)
    except errors.UniqueViolation:
        return False


def _insert_one(connection: Connection, schema: str, task: Task) -> bool:
    given = non_default_fields(task)
    if not _FIELDS.issuperset(given):
        return False
    sql, encoders = _insert_sql(schema, tuple(given))
    prepared.run(connection, sql, [encode(value) for encode, value in zip(encoders, given.values(), strict=True)])
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
