"""Inserts that may conflict: a given id, a unique key, or the caller's own transaction.

Many rows are one statement, one array per column; a value that all rows share is sent once. Inserts that cannot
conflict use fast/insert_new.py.
"""

from collections.abc import Callable, Generator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from onerow.core.corruption import decoded
from onerow.core.errors import RetryTransaction
from onerow.core.task import COLUMN, Task, non_default_fields
from onerow.ports import Existing, Inserted
from onerow.stores.postgres.counts import counting_insert
from onerow.stores.postgres.fast.binary import Texts, column
from onerow.stores.postgres.fast.insert_new import CHUNK
from onerow.stores.postgres.pipelining import Cursor
from onerow.stores.postgres.rows import COLUMNS, ID, KINDS, NEW_FIELDS, SQL_TYPE, task_of, varying_and_shared_fields
from onerow.stores.postgres.statements import quoted, statement

_MAX_TRIES = 10

Answers = list[Inserted | Existing]


class Step(NamedTuple):
    """One statement of an insert: insert the tasks that do not conflict, or find the tasks that they conflict with."""

    inserts: bool
    tasks: Sequence[Task]


def steps(tasks: Sequence[Task]) -> Generator[Step, Any, Answers]:
    """Yield the statements that insert tasks, and return the answers; the caller executes each and sends its result.

    The result of an insert is the ids of the new tasks; of a search, pairs of an index in Step.tasks and a stored task.
    """
    answers: dict[int, Inserted | Existing] = {}
    left: Sequence[int] = range(len(tasks))
    for _ in range(_MAX_TRIES):
        new = set((yield Step(True, [tasks[index] for index in left])))
        if len(new) == len(tasks):
            return [Inserted(task) for task in tasks]
        for index in left:
            if tasks[index].task_id in new:
                new.remove(tasks[index].task_id)  # another task in `tasks` with the same id was not inserted
                answers[index] = Inserted(tasks[index])
        left = [index for index in left if index not in answers]
        if left:
            for nth, task in (yield Step(False, [tasks[index] for index in left])):
                answers[left[nth]] = Existing(task)
            left = [index for index in left if index not in answers]  # their conflict is gone: try again
        if not left:
            return [answers[index] for index in range(len(tasks))]
    raise RetryTransaction("conflicting tasks kept changing")


def execute(tasks: Sequence[Task], run: Callable[[Step], Any]) -> Answers:
    """Insert tasks with a function that executes one step."""
    asking = steps(tasks)
    step = next(asking)
    while True:
        try:
            step = asking.send(run(step))
        except StopIteration as end:
            return list(end.value)


def insert(cursor: Cursor, schema: str, tasks: Sequence[Task]) -> Answers:
    """See ports.Store.insert; runs in the cursor's current transaction."""
    return execute(tasks, lambda step: _run(cursor, schema, step))


def _run(cursor: Cursor, schema: str, step: Step) -> Any:
    if not step.inserts:
        return _existing(cursor, schema, step.tasks)
    new: set[str] = set()
    for start in range(0, len(step.tasks), CHUNK):
        new |= _insert_new_rows(cursor, schema, step.tasks[start : start + CHUNK])
    return new


def _insert_new_rows(cursor: Cursor, schema: str, tasks: Sequence[Task]) -> set[str]:
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


def _existing(cursor: Cursor, schema: str, tasks: Sequence[Task]) -> list[tuple[int, Task]]:
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
    found = decoded([row[1:] for row in rows], task_of, ID)
    return [(row[0] - 1, task) for row, task in zip(rows, found, strict=True)]


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
