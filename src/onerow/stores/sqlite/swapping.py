"""Swapping: what rules decided is written, many rows in one statement, an answer for each.

Rows that change the same columns share a statement; a value that all of them share is bound once. Nearly always every
row is written, and the count says so; only when some were not does a second look, row by row, find out which.
"""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from operator import attrgetter

from onerow.core.task import COLUMN, Task, changed_fields
from onerow.core.times import spell
from onerow.ports import Conflict, Move, Stale, SwapAnswer, Swapped
from onerow.stores.sqlite.batches import batches, chunks, update_sql
from onerow.stores.sqlite.rows import to_sql


def swap(connection: sqlite3.Connection, moves: Sequence[Move], now: datetime) -> list[SwapAnswer]:
    """See ports.Store.swap; inside an open transaction."""
    groups: dict[tuple[str, ...], list[int]] = {}
    single: list[int] = []
    for index, move in enumerate(moves):
        fields = changed_fields(move.before, move.after)
        if move.if_dead or "held_key" in fields or move.after.version != move.before.version + 1:
            single.append(index)  # has a condition of its own, or may collide with another task's key
        else:
            groups.setdefault(fields, []).append(index)
    answers: list[SwapAnswer | None] = [None] * len(moves)
    for fields, indexes in groups.items():
        for chunk in chunks(indexes):
            if _swap_together(connection, fields, [moves[index] for index in chunk]):
                for index in chunk:
                    answers[index] = Swapped(moves[index].after)
            else:
                single += chunk
    for index in single:
        answers[index] = _swap_one(connection, moves[index], now)
    return answers  # type: ignore[return-value]


def _swap_together(connection: sqlite3.Connection, fields: tuple[str, ...], moves: Sequence[Move]) -> bool:
    """Write rows that change the same columns; nothing at all unless every one could be written."""
    if len(moves) == 1:
        return False
    names = ("task_id", "version", *(field for field in fields if field != "version"))
    read = attrgetter(*names)
    rows = [read(move.after) for move in moves]
    connection.execute("SAVEPOINT onerow_swap")
    try:
        written = 0
        for batch in batches(names, rows, always=2):
            sql = update_sql(batch.shared, batch.varying, batch.size)
            written += connection.execute(sql, batch.given).rowcount
        whole = written == len(moves)
    except sqlite3.IntegrityError:
        whole = False  # a row that can't be written; found singly
    if not whole:
        connection.execute("ROLLBACK TO onerow_swap")
    connection.execute("RELEASE onerow_swap")
    return whole


def _swap_one(connection: sqlite3.Connection, move: Move, now: datetime) -> SwapAnswer:
    before, after = move.before, move.after
    fields = ("version", *(field for field in changed_fields(before, after) if field != "version"))
    written = {field: to_sql(getattr(after, field)) for field in fields}
    sets = ", ".join(f"{COLUMN[field]} = {'NULL' if value is None else '?'}" for field, value in written.items())
    sql = f"UPDATE task_queue SET {sets} WHERE task_id = ? AND version = ?"
    given = [*(value for value in written.values() if value is not None), before.task_id, before.version]
    if move.if_dead:
        sql += " AND leased_until <= ?"
        given.append(spell(now))
    try:
        count = connection.execute(sql, given).rowcount
    except sqlite3.IntegrityError:
        return Conflict(before.task_id, _holder(connection, after))
    return Swapped(after) if count else Stale(before.task_id)


def _holder(connection: sqlite3.Connection, task: Task) -> str:
    row = connection.execute(
        "SELECT task_id FROM task_queue WHERE pipeline = ? AND user_id = ? AND held_key = ?",
        (task.pipeline, task.user_id, task.held_key),
    ).fetchone()
    if row is None:
        raise sqlite3.IntegrityError(f"task {task.task_id} breaks a rule of the table")
    return str(row[0])
