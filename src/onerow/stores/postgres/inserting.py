"""Inserting: many rows in one statement, one array per column; a value that all rows share is sent once.

As fast as COPY, which would need a table of its own beside it to know ON CONFLICT.
"""

from collections.abc import Sequence
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any

from psycopg import errors

from onerow.core.task import COLUMN, DEFAULTS, FIELDS, Task
from onerow.ports import Existing, Inserted
from onerow.stores.postgres.door import Cursor
from onerow.stores.postgres.rows import BORN_FIELDS, COLUMNS, KINDS, SQL_TYPE, is_newborn, task_of
from onerow.stores.postgres.statements import quoted, statement
from onerow.stores.postgres.tallies import counting_insert
from onerow.stores.postgres.wire import Texts, column

CHUNK = 5_000
"""Rows in one statement: enough to be fast, few enough for a statement_timeout."""

_TRIES = 10
# Nearly always each row has its own; so that the same statement serves every batch, they are never sent as shared.
_OWN = frozenset({"task_id", "payload_json"})


def insert(cursor: Cursor, schema: str, tasks: Sequence[Task]) -> list[Inserted | Existing]:
    """See ports.Store.insert; in whatever transaction the cursor is."""
    new: set[str] = set()
    for start in range(0, len(tasks), CHUNK):
        new |= put(cursor, schema, tasks[start : start + CHUNK])
    if len(new) == len(tasks):
        return [Inserted(task) for task in tasks]
    return _sort_out(cursor, schema, tasks, new)


def put(cursor: Cursor, schema: str, tasks: Sequence[Task]) -> set[str]:
    """Insert what is in nobody's way; the ids that went in."""
    fields, answering = (
        (BORN_FIELDS, _returning) if all(map(is_newborn, tasks)) else (FIELDS, partial(counting_insert, schema))
    )
    read = attrgetter(*fields)
    if len(tasks) == 1:
        given = {field: value for field, value in zip(fields, read(tasks[0]), strict=True) if _must_send(field, value)}
        cursor.execute(answering(_insert_one(schema, tuple(given))), tuple(given.values()))
        return {task_id for (task_id,) in cursor.fetchall()}
    own: dict[str, Any] = {}
    shared: dict[str, Any] = {}
    for field, values in zip(fields, zip(*map(read, tasks), strict=True), strict=True):
        if field in _OWN or values.count(values[0]) != len(values):
            own[field] = column(KINDS[field], values)
        elif _must_send(field, values[0]):
            shared[field] = values[0]
    cursor.execute(answering(_insert(schema, tuple(own), tuple(shared))), own | shared)
    return {task_id for (task_id,) in cursor.fetchall()}


def _returning(insert: str) -> str:
    return f"{insert} RETURNING task_id"


def _must_send(field: str, value: Any) -> bool:
    """Whether the column's default is not what the task has."""
    return field not in DEFAULTS or DEFAULTS[field] != value


def _sort_out(cursor: Cursor, schema: str, tasks: Sequence[Task], new: set[str]) -> list[Inserted | Existing]:
    """Who went in and who didn't; those in whose way nobody is any more get another try."""
    answers: dict[int, Inserted | Existing] = {}
    for _ in range(_TRIES):
        for index, task in enumerate(tasks):
            if index not in answers and task.task_id in new:
                new.remove(task.task_id)  # a second one with the same id was not inserted
                answers[index] = Inserted(task)
        left = [index for index in range(len(tasks)) if index not in answers]
        for place, task in _existing(cursor, schema, [tasks[index] for index in left]).items():
            answers[left[place]] = Existing(task)
        if len(answers) == len(tasks):
            return [answers[index] for index in range(len(tasks))]
        new = put(cursor, schema, [task for index, task in enumerate(tasks) if index not in answers])
    raise errors.SerializationFailure("the tasks in the way kept coming and going")


def _existing(cursor: Cursor, schema: str, tasks: Sequence[Task]) -> dict[int, Task]:
    sql = statement("existing", schema).replace("{columns}", COLUMNS)
    cursor.execute(
        sql,
        {
            "ids": column(Texts, [task.task_id for task in tasks]),
            "pipelines": column(Texts, [task.pipeline for task in tasks]),
            "users": column(Texts, [task.user_id for task in tasks]),
            "keys": column(Texts, [task.held_key for task in tasks]),
        },
    )
    return {place - 1: task_of(row) for place, *row in cursor.fetchall()}


@lru_cache(maxsize=256)
def _insert_one(schema: str, fields: tuple[str, ...]) -> str:
    return (
        f"INSERT INTO {quoted(schema)}.task_queue ({', '.join(COLUMN[field] for field in fields)}) "
        f"VALUES ({', '.join(['%s'] * len(fields))}) ON CONFLICT DO NOTHING"
    )


@lru_cache(maxsize=256)
def _insert(schema: str, own: tuple[str, ...], shared: tuple[str, ...]) -> str:
    values = [f"m.{field}" for field in own] + [f"%({field})s::{SQL_TYPE[KINDS[field]]}" for field in shared]
    return (
        f"INSERT INTO {quoted(schema)}.task_queue ({', '.join(COLUMN[field] for field in (*own, *shared))}) "
        f"SELECT {', '.join(values)} FROM unnest({', '.join(f'%({field})s' for field in own)}) AS m ({', '.join(own)}) "
        f"ON CONFLICT DO NOTHING"
    )
