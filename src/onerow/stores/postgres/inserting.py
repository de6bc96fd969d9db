"""Inserting: many rows in one statement, one array per column; a value that all rows share is sent once."""

from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

from psycopg import errors

from onerow.core.task import COLUMN, FIELDS, Task
from onerow.ports import Existing, Inserted
from onerow.stores.postgres.door import Cursor
from onerow.stores.postgres.rows import BORN_FIELDS, COLUMNS, KINDS, SQL_TYPE, is_newborn, task_of
from onerow.stores.postgres.statements import quoted, statement
from onerow.stores.postgres.wire import Texts, column

CHUNK = 5_000
"""Rows in one statement: enough to be fast, few enough for a statement_timeout."""

_TRIES = 10
# Nearly always each row has its own; so that the same statement serves every batch, they are never sent as shared.
_OWN = frozenset({"task_id", "payload_json"})


def insert(cursor: Cursor, schema: str, tasks: Sequence[Task]) -> list[Inserted | Existing]:
    """See ports.Store.insert; in whatever transaction the cursor is."""
    answers: dict[int, Inserted | Existing] = {}
    left = list(range(len(tasks)))
    for _ in range(_TRIES):
        for start in range(0, len(left), CHUNK):
            chunk = left[start : start + CHUNK]
            new = put(cursor, schema, [tasks[index] for index in chunk])
            for index in chunk:
                if tasks[index].task_id in new:
                    new.remove(tasks[index].task_id)  # a second one with the same id was not inserted
                    answers[index] = Inserted(tasks[index])
        left = [index for index in left if index not in answers]
        if left:
            found = _existing(cursor, schema, [tasks[index] for index in left])
            answers |= {left[place]: Existing(task) for place, task in found.items()}
            left = [index for index in left if index not in answers]
        if not left:
            return [answers[index] for index in range(len(tasks))]
        # Whoever was in our way has gone meanwhile.
    raise errors.SerializationFailure("the tasks in the way kept coming and going")


def put(cursor: Cursor, schema: str, tasks: Sequence[Task]) -> set[str]:
    """Insert what is in nobody's way; the ids that went in."""
    fields = BORN_FIELDS if all(map(is_newborn, tasks)) else FIELDS
    columns = list(zip(*map(attrgetter(*fields), tasks), strict=True))
    shared = []
    given: dict[str, Any] = {}
    for field, values in zip(fields, columns, strict=True):
        if field not in _OWN and values.count(values[0]) == len(values):
            shared.append(field)
            given[field] = values[0]
        else:
            given[field] = column(KINDS[field], values)
    cursor.execute(_insert(schema, fields, tuple(shared)), given)
    return {task_id for (task_id,) in cursor.fetchall()}


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
def _insert(schema: str, fields: tuple[str, ...], shared: tuple[str, ...]) -> Any:
    own = [field for field in fields if field not in shared]
    values = [f"%({field})s::{SQL_TYPE[KINDS[field]]}" if field in shared else f"m.{field}" for field in fields]
    return (
        f"INSERT INTO {quoted(schema)}.task_queue ({', '.join(COLUMN[field] for field in fields)}) "
        f"SELECT {', '.join(values)} FROM unnest({', '.join(f'%({field})s' for field in own)}) AS m ({', '.join(own)}) "
        f"ON CONFLICT DO NOTHING RETURNING task_id"
    )
