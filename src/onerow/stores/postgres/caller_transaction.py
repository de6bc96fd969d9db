"""Adds tasks in the caller's own transaction; they become visible when it commits.

A psycopg connection uses the same code as our own connections. All others (SQLAlchemy, Django, asyncpg, async psycopg)
run statements with a single text parameter, which every driver supports. The generator `_steps` yields them to a sync
or an async runner.
"""

import sys
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import psycopg
from psycopg import pq
from psycopg.rows import tuple_row

from onerow.core.errors import BadInput, OnerowError, RetryTransaction
from onerow.core.task import COLUMN, FIELDS, Task
from onerow.core.times import spell
from onerow.ports import Existing, Inserted
from onerow.stores.postgres import inserting
from onerow.stores.postgres.driver_errors import store_error
from onerow.stores.postgres.fast.binary import Jsons, Moments, register_adapters
from onerow.stores.postgres.rows import INSERT_FIELDS, KINDS, SQL_TYPE, is_new, task_of_texts
from onerow.stores.postgres.statements import statement

Answers = list[Inserted | Existing]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_MAX_TRIES = 10


class _Step(NamedTuple):
    """A statement with the placeholder {given} for its single parameter; it returns a list of texts."""

    sql: str
    given: str


def insert(tx: Any, schema: str, tasks: Sequence[Task], where: str) -> Answers:
    """Insert tasks in the caller's transaction."""
    with _translated(where):
        if isinstance(tx, psycopg.Connection):
            _must_be_begun(tx)
            with psycopg.Cursor(tx, row_factory=tuple_row) as cursor:  # ignores the caller's cursor and row factories
                cursor.format = pq.Format.BINARY
                register_adapters(cursor.adapters)
                return inserting.insert(cursor, schema, tasks)
        run = _runner(tx)
        steps = _steps(schema, tasks)
        step = next(steps)
        while True:
            try:
                step = steps.send(run(step))
            except StopIteration as end:
                return list(end.value)


async def insert_async(tx: Any, schema: str, tasks: Sequence[Task], where: str) -> Answers:
    """Like `insert`, for async connections and sessions."""
    with _translated(where):
        run = _async_runner(tx)
        steps = _steps(schema, tasks)
        step = next(steps)
        while True:
            rows = await run(step)
            try:
                step = steps.send(rows)
            except StopIteration as end:
                return list(end.value)


def _steps(schema: str, tasks: Sequence[Task]) -> Generator[_Step, list[str], Answers]:
    answers: dict[int, Inserted | Existing] = {}
    for _ in range(_MAX_TRIES):
        left = [index for index in range(len(tasks)) if index not in answers]
        if not left:
            return [answers[index] for index in range(len(tasks))]
        fields = INSERT_FIELDS if all(map(is_new, tasks)) else FIELDS
        new = set((yield _Step(_insert_sql(schema, fields), _as_json([tasks[i] for i in left], fields))))
        for index in left:
            if tasks[index].task_id in new:
                new.remove(tasks[index].task_id)  # another task in `tasks` with the same id was not inserted
                answers[index] = Inserted(tasks[index])
        asked = [
            {
                "position": index,
                "id": task.task_id,
                "pipeline": task.pipeline,
                "user_id": task.user_id,
                "key": task.held_key,
            }
            for index, task in enumerate(tasks)
            if index not in answers
        ]
        if asked:
            for text in (yield _Step(_existing_sql(schema), _encode(asked).decode())):
                index, *row = _decode(text)
                answers[index] = Existing(task_of_texts(row))
    raise RetryTransaction("conflicting tasks kept changing; retry the transaction")


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


# ── runners: one for each kind of connection or session ───────────────────────────────────────────────────────────


def _runner(tx: Any) -> Callable[[_Step], list[str]]:
    if isinstance(tx, str) or _comes_from(tx, "django"):
        return _django(tx)
    if _comes_from(tx, "sqlalchemy"):
        if _comes_from(tx, "sqlalchemy.ext.asyncio"):
            raise _must_be_awaited(tx)
        return lambda step: _texts(tx.execute(*_for_sqlalchemy(step)))
    if isinstance(tx, psycopg.AsyncConnection) or _comes_from(tx, "asyncpg"):
        raise _must_be_awaited(tx)
    raise _unknown(tx)


def _async_runner(tx: Any) -> Callable[[_Step], Awaitable[list[str]]]:
    if isinstance(tx, psycopg.AsyncConnection):
        _must_be_begun(tx)

        async def by_psycopg(step: _Step) -> list[str]:
            async with psycopg.AsyncCursor(tx, row_factory=tuple_row) as cursor:
                await cursor.execute(step.sql.replace("{given}", "%s").encode(), (step.given,))
                return [row[0] for row in await cursor.fetchall()]

        return by_psycopg
    if _comes_from(tx, "asyncpg"):
        if not tx.is_in_transaction():
            raise BadInput(
                "tx: no transaction is open on this connection; begin one with conn.transaction()", field="tx"
            )

        async def by_asyncpg(step: _Step) -> list[str]:
            rows = await tx.fetch(step.sql.replace("{given}", "$1::text"), step.given)
            return [row[0] for row in rows]

        return by_asyncpg
    if _comes_from(tx, "sqlalchemy.ext.asyncio"):

        async def by_sqlalchemy(step: _Step) -> list[str]:
            return _texts(await tx.execute(*_for_sqlalchemy(step)))

        return by_sqlalchemy

    run = _runner(tx)

    async def by_waiting(step: _Step) -> list[str]:
        return run(step)  # blocks the event loop, like any other use of a sync session in async code

    return by_waiting


def _django(tx: Any) -> Callable[[_Step], list[str]]:
    if isinstance(tx, str):
        try:
            from django.db import connections

            tx = connections[tx]
        except Exception as error:  # no Django, no settings, or no such alias
            raise BadInput(f"tx: {tx!r} is no alias of a Django connection here: {error}", field="tx") from error
    if tx.vendor != "postgresql":
        raise BadInput(f"tx: the Django connection {tx.alias!r} is to {tx.vendor}, not PostgreSQL", field="tx")
    if tx.get_autocommit() and not tx.in_atomic_block:
        raise BadInput("tx: no transaction is open; use it inside transaction.atomic()", field="tx")

    def run(step: _Step) -> list[str]:
        with tx.cursor() as cursor:
            cursor.execute(step.sql.replace("{given}", "%s"), [step.given])
            return [row[0] for row in cursor.fetchall()]

    return run


def _for_sqlalchemy(step: _Step) -> tuple[Any, dict[str, str]]:
    text = sys.modules["sqlalchemy"].text  # imported already: the caller has a session
    return text(step.sql.replace("{given}", ":given").replace("\\:", ":")), {"given": step.given}


def _texts(result: Any) -> list[str]:
    return [row[0] for row in result.fetchall()]


def _comes_from(tx: Any, module: str) -> bool:
    return any(f"{kind.__module__}.".startswith(f"{module}.") for kind in type(tx).__mro__)


def _must_be_begun(tx: "psycopg.Connection[Any] | psycopg.AsyncConnection[Any]") -> None:
    if tx.autocommit and tx.info.transaction_status == pq.TransactionStatus.IDLE:
        raise BadInput("tx: no transaction is open on this connection; begin one with conn.transaction()", field="tx")


def _must_be_awaited(tx: Any) -> BadInput:
    return BadInput(f"tx: {type(tx).__name__} belongs to an event loop; use: await queue.aadd(…, tx=…)", field="tx")


def _unknown(tx: Any) -> BadInput:
    return BadInput(
        f"tx: give your open connection or session (psycopg, SQLAlchemy, asyncpg) or Django's alias, "
        f"not {type(tx).__name__}",
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
