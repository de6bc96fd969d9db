"""Adds tasks in the caller's own transaction; they become visible when it commits.

A psycopg connection uses the same code as our own connections. All others (SQLAlchemy, Django, asyncpg, async psycopg)
run statements with a single text parameter, which every driver supports.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple
from weakref import WeakSet

import msgspec
import psycopg
from psycopg import pq
from psycopg.rows import tuple_row

from onerow.core.errors import BadInput, OnerowError
from onerow.core.task import COLUMN, FIELDS, Task
from onerow.core.times import spell
from onerow.stores.postgres import inserting
from onerow.stores.postgres.connections import Connections
from onerow.stores.postgres.driver_errors import store_error
from onerow.stores.postgres.fast.binary import Jsons, Moments, register_adapters
from onerow.stores.postgres.rows import INSERT_FIELDS, KINDS, SQL_TYPE, is_new, task_of_texts
from onerow.stores.postgres.statements import statement
from onerow.stores.shared.callers_django import comes_from, django_connection

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_IDENTITY = statement("database_identity", "")
"""Returns one text; its parameter {given} is a prefix of it."""


class CallersDatabase:
    """Checks once for each caller's connection that it is to the queue's own database."""

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
        sql = _IDENTITY.replace("{given}", "''").encode()
        ((identity,),) = self._connections.read(lambda connection: connection.execute(sql).fetchall())
        return str(identity)


class _Query(NamedTuple):
    """A statement with the placeholder {given} for its single parameter; it returns a list of texts."""

    sql: str
    given: str


def insert(tx: Any, schema: str, tasks: Sequence[Task], where: str, database: CallersDatabase) -> inserting.Answers:
    """Insert tasks in the caller's transaction."""
    with _translated(where):
        if isinstance(tx, psycopg.Connection):
            _must_be_begun(tx)
            with psycopg.Cursor(tx, row_factory=tuple_row) as cursor:  # ignores the caller's cursor and row factories
                if not database.is_verified(tx):
                    cursor.execute(_IDENTITY.replace("{given}", "''").encode())
                    database.verify(tx, cursor.fetchall()[0][0])
                cursor.format = pq.Format.BINARY
                register_adapters(cursor.adapters)
                return inserting.insert(cursor, schema, tasks)
        run, connection = _runner(tx)
        if not database.is_verified(connection):
            database.verify(connection, run(_Query(_IDENTITY, ""))[0])
        return inserting.execute(tasks, lambda step: _result(step, run(_query(schema, step))))


async def insert_async(
    tx: Any, schema: str, tasks: Sequence[Task], where: str, database: CallersDatabase
) -> inserting.Answers:
    """Like `insert`, for async connections and sessions."""
    with _translated(where):
        run, connection = await _async_runner(tx)
        if not database.is_verified(connection):
            identity = (await run(_Query(_IDENTITY, "")))[0]
            await asyncio.to_thread(database.verify, connection, identity)
        steps = inserting.steps(tasks)
        step = next(steps)
        while True:
            result = _result(step, await run(_query(schema, step)))
            try:
                step = steps.send(result)
            except StopIteration as end:
                return list(end.value)


def _query(schema: str, step: inserting.Step) -> _Query:
    if step.inserts:
        fields = INSERT_FIELDS if all(map(is_new, step.tasks)) else FIELDS
        return _Query(_insert_sql(schema, fields), _as_json(step.tasks, fields))
    asked = [
        {
            "position": index,
            "id": task.task_id,
            "pipeline": task.pipeline,
            "user_id": task.user_id,
            "key": task.held_key,
        }
        for index, task in enumerate(step.tasks)
    ]
    return _Query(_existing_sql(schema), _encode(asked).decode())


def _result(step: inserting.Step, texts: list[str]) -> Any:
    if step.inserts:
        return texts
    return [(index, task_of_texts(row)) for index, *row in map(_decode, texts)]


def _as_json(tasks: Sequence[Task], fields: Sequence[str]) -> str:
    return _encode(
        [{COLUMN[field]: _json_value(field, getattr(task, field)) for field in fields} for task in tasks]
    ).decode()


def _json_value(field: str, value: Any) -> Any:
    if value is None:
        return None
    if KINDS[field] is Jsons:
        return msgspec.Raw(value.encode())
    return spell(value) if KINDS[field] is Moments else value


@lru_cache(maxsize=16)
def _insert_sql(schema: str, fields: tuple[str, ...]) -> str:
    types = ", ".join(f"{COLUMN[field]} {SQL_TYPE[KINDS[field]]}" for field in fields)
    columns = ", ".join(COLUMN[field] for field in fields)
    # json_to_recordset reads a JSON null as SQL NULL; for our JSON columns it is a value.
    values = ", ".join(
        f"coalesce({COLUMN[field]}, 'null')" if KINDS[field] is Jsons else COLUMN[field] for field in fields
    )
    sql = statement("insert_json", schema)
    return sql.replace("{columns}", columns).replace("{values}", values).replace("{types}", types)


@lru_cache(maxsize=16)
def _existing_sql(schema: str) -> str:
    columns = [
        f"to_char(t.{COLUMN[field]} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')"
        if KINDS[field] is Moments
        else f"CAST(t.{COLUMN[field]} AS text)"
        if KINDS[field] is Jsons
        else f"t.{COLUMN[field]}"
        for field in FIELDS
    ]
    return statement("existing_json", schema).replace("{columns}", ", ".join(columns))


# ── runners: one for each kind of connection or session, with the driver's connection that it uses ────────────────

_Run = Callable[[_Query], list[str]]
_RunAsync = Callable[[_Query], Awaitable[list[str]]]


def _runner(tx: Any) -> tuple[_Run, Any]:
    if (connection := django_connection(tx, "postgresql")) is not None:
        return _django(connection), connection.connection
    if comes_from(tx, "sqlalchemy"):
        if comes_from(tx, "sqlalchemy.ext.asyncio"):
            raise _must_be_awaited(tx)
        connection = tx.connection() if callable(tx.connection) else tx  # of a Session, or a Connection itself
        return lambda query: _texts(tx.execute(*_for_sqlalchemy(query))), _driver_connection(connection)
    if isinstance(tx, psycopg.AsyncConnection) or comes_from(tx, "asyncpg"):
        raise _must_be_awaited(tx)
    raise _unknown(tx)


async def _async_runner(tx: Any) -> tuple[_RunAsync, Any]:
    if isinstance(tx, psycopg.AsyncConnection):
        _must_be_begun(tx)

        async def by_psycopg(query: _Query) -> list[str]:
            async with psycopg.AsyncCursor(tx, row_factory=tuple_row) as cursor:
                await cursor.execute(query.sql.replace("{given}", "%s").encode(), (query.given,))
                return [row[0] for row in await cursor.fetchall()]

        return by_psycopg, tx
    if comes_from(tx, "asyncpg"):
        if not tx.is_in_transaction():
            raise BadInput(
                "tx: no transaction is open on this connection", fix="begin one with conn.transaction()", field="tx"
            )

        async def by_asyncpg(query: _Query) -> list[str]:
            rows = await tx.fetch(query.sql.replace("{given}", "$1::text"), query.given)
            return [row[0] for row in rows]

        return by_asyncpg, getattr(tx, "_con", tx)  # a pool lends a new proxy each time, around the same connection
    if comes_from(tx, "sqlalchemy.ext.asyncio"):

        async def by_sqlalchemy(query: _Query) -> list[str]:
            return _texts(await tx.execute(*_for_sqlalchemy(query)))

        connection = tx if hasattr(tx, "sync_connection") else await tx.connection()
        return by_sqlalchemy, _driver_connection(connection.sync_connection)

    run, connection = _runner(tx)

    async def by_waiting(query: _Query) -> list[str]:
        return run(query)  # blocks the event loop, like any other use of a sync session in async code

    return by_waiting, connection


def _django(tx: Any) -> _Run:
    def run(query: _Query) -> list[str]:
        with tx.cursor() as cursor:
            cursor.execute(query.sql.replace("{given}", "%s"), [query.given])
            return [row[0] for row in cursor.fetchall()]

    return run


def _for_sqlalchemy(query: _Query) -> tuple[Any, dict[str, str]]:
    text = sys.modules["sqlalchemy"].text  # imported already: the caller has a session
    return text(query.sql.replace("{given}", ":given").replace("\\:", ":")), {"given": query.given}


def _texts(result: Any) -> list[str]:
    return [row[0] for row in result.fetchall()]


def _driver_connection(connection: Any) -> Any:
    """Return the driver's connection of a SQLAlchemy Connection; raise BadInput if it is in AUTOCOMMIT mode."""
    pooled = connection.connection
    if getattr(pooled.dbapi_connection, "autocommit", False):
        raise BadInput(
            "tx: this SQLAlchemy connection is in AUTOCOMMIT mode, so no transaction is open",
            fix="use another isolation level",
            field="tx",
        )
    return pooled.driver_connection


def _must_be_begun(tx: "psycopg.Connection[Any] | psycopg.AsyncConnection[Any]") -> None:
    if tx.autocommit and tx.info.transaction_status == pq.TransactionStatus.IDLE:
        raise BadInput(
            "tx: no transaction is open on this connection", fix="begin one with conn.transaction()", field="tx"
        )


def _must_be_awaited(tx: Any) -> BadInput:
    return BadInput(f"tx: {type(tx).__name__} is async", fix="use: await queue.add_async(…, tx=…)", field="tx")


def _unknown(tx: Any) -> BadInput:
    return BadInput(
        f"tx: {type(tx).__name__} is not a transaction",
        fix="pass an open connection or session (psycopg, SQLAlchemy, asyncpg) or the alias of a Django connection",
        field="tx",
    )


@contextmanager
def _translated(where: str) -> Iterator[None]:
    try:
        yield
    except OnerowError:
        raise
    except Exception as error:
        raise store_error(error, where) from error
