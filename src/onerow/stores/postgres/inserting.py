"""Inserting where somebody may be in the way: an id that was given, a unique key, the caller's own transaction.

Many rows are one statement, one array per column; a value that all rows share is sent once. See `fresh` for the rest.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from psycopg import errors

from onerow.core.corruption import decoded
from onerow.core.task import COLUMN, Task, non_default_fields
from onerow.ports import Existing, Inserted
from onerow.stores.postgres.connections import Cursor
from onerow.stores.postgres.counts import counting_insert
from onerow.stores.postgres.fast.binary import Texts, column
from onerow.stores.postgres.fast.insert_new import CHUNK
from onerow.stores.postgres.rows import COLUMNS, ID, KINDS, NEW_FIELDS, SQL_TYPE, task_of, told_together
from onerow.stores.postgres.statements import quoted, statement

_TRIES = 10


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
    own: dict[str, Any] = {}
    if len(tasks) == 1:
        shared = non_default_fields(tasks[0])
    else:
        differing, shared = told_together(tasks)
        own = {field: column(KINDS[field], values) for field, values in differing.items()}
    sql = _insert(schema, tuple(own), tuple(shared))
    is_newborn = NEW_FIELDS.issuperset(own) and NEW_FIELDS.issuperset(shared)
    cursor.execute(f"{sql} RETURNING task_id" if is_newborn else counting_insert(schema, sql), own | shared)
    return {task_id for (task_id,) in cursor.fetchall()}


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
    rows = cursor.fetchall()
    tasks = decoded([row[1:] for row in rows], task_of, ID)
    return {row[0] - 1: task for row, task in zip(rows, tasks, strict=True)}


@lru_cache(maxsize=256)
def _insert(schema: str, own: tuple[str, ...], shared: tuple[str, ...]) -> str:
    values = [f"m.{field}" for field in own] + [f"%({field})s::{SQL_TYPE[KINDS[field]]}" for field in shared]
    rows = f" FROM unnest({', '.join(f'%({field})s' for field in own)}) AS m ({', '.join(own)})" if own else ""
    return (
        f"INSERT INTO {quoted(schema)}.task_queue ({', '.join(COLUMN[field] for field in (*own, *shared))}) "
        f"SELECT {', '.join(values)}{rows} ON CONFLICT DO NOTHING"
    )
