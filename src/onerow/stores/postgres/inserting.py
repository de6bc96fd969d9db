"""Inserts that may conflict: a given id, a unique key, or the caller's own transaction.

Many rows are one statement, one array per column; a value that all rows share is sent once. Inserts that cannot
conflict use fast/insert_new.py.
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
from onerow.stores.postgres.rows import COLUMNS, ID, KINDS, NEW_FIELDS, SQL_TYPE, task_of, varying_and_shared_fields
from onerow.stores.postgres.statements import quoted, statement

_MAX_TRIES = 10


def insert(cursor: Cursor, schema: str, tasks: Sequence[Task]) -> list[Inserted | Existing]:
    """See ports.Store.insert; runs in the cursor's current transaction."""
    new: set[str] = set()
    for start in range(0, len(tasks), CHUNK):
        new |= insert_new_rows(cursor, schema, tasks[start : start + CHUNK])
    if len(new) == len(tasks):
        return [Inserted(task) for task in tasks]
    return _resolve_conflicts(cursor, schema, tasks, new)


def insert_new_rows(cursor: Cursor, schema: str, tasks: Sequence[Task]) -> set[str]:
    """Insert the tasks that do not conflict; return their ids."""
    varying: dict[str, Any] = {}
    if len(tasks) == 1:
        shared = non_default_fields(tasks[0])
    else:
        values_of, shared = varying_and_shared_fields(tasks)
        varying = {field: column(KINDS[field], values) for field, values in values_of.items()}
    sql = _insert(schema, tuple(varying), tuple(shared))
    is_new = NEW_FIELDS.issuperset(varying) and NEW_FIELDS.issuperset(shared)
    cursor.execute(f"{sql} RETURNING task_id" if is_new else counting_insert(schema, sql), varying | shared)
    return {task_id for (task_id,) in cursor.fetchall()}


def _resolve_conflicts(cursor: Cursor, schema: str, tasks: Sequence[Task], new: set[str]) -> list[Inserted | Existing]:
    """Separate inserted tasks from existing ones; retry tasks whose conflict is gone."""
    answers: dict[int, Inserted | Existing] = {}
    for _ in range(_MAX_TRIES):
        for index, task in enumerate(tasks):
            if index not in answers and task.task_id in new:
                new.remove(task.task_id)  # another task in `tasks` with the same id was not inserted
                answers[index] = Inserted(task)
        left = [index for index in range(len(tasks)) if index not in answers]
        for nth, task in _existing(cursor, schema, [tasks[index] for index in left]).items():
            answers[left[nth]] = Existing(task)
        if len(answers) == len(tasks):
            return [answers[index] for index in range(len(tasks))]
        new = insert_new_rows(cursor, schema, [task for index, task in enumerate(tasks) if index not in answers])
    raise errors.SerializationFailure("conflicting tasks kept changing")


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
def _insert(schema: str, varying: tuple[str, ...], shared: tuple[str, ...]) -> str:
    values = [f"m.{field}" for field in varying] + [f"%({field})s::{SQL_TYPE[KINDS[field]]}" for field in shared]
    rows = (
        f" FROM unnest({', '.join(f'%({field})s' for field in varying)}) AS m ({', '.join(varying)})" if varying else ""
    )
    return (
        f"INSERT INTO {quoted(schema)}.task_queue ({', '.join(COLUMN[field] for field in (*varying, *shared))}) "
        f"SELECT {', '.join(values)}{rows} ON CONFLICT DO NOTHING"
    )
