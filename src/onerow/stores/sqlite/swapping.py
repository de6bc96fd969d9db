"""Swapping: what rules decided is written, many rows in one statement, an answer for each.

All rows share a statement, and a value that all of them share is bound once. Nearly always every row is written, and the
count says so; only when some were not does a second look, row by row, find out which.
"""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from time import monotonic
from typing import Any

from onerow.core.errors import RowRefused
from onerow.core.task import COLUMN, Task, changed_columns, changed_fields
from onerow.core.times import spell
from onerow.ports import Conflict, Move, Stale, SwapAnswer, Swapped
from onerow.stores.sqlite import counts
from onerow.stores.sqlite.bulk_write import MOST, batches, update_sql
from onerow.stores.sqlite.rows import to_sql

_LATE = 1.0
"""Seconds of waiting for the write lock after which a rescue is not written: holders' heartbeats waited as well."""


class Swapping:
    """Moves, put together before there is a transaction, so that the write lock is held for no more than the SQL."""

    def __init__(self, moves: Sequence[Move]) -> None:
        self._moves = moves
        self._made_at = monotonic()
        self._singly: list[int] = []
        together: list[int] = []
        for index, move in enumerate(moves):
            before, after = move.before, move.after
            # Some have a condition of their own, or may collide with another task's key.
            alone = move.if_dead or after.held_key != before.held_key or after.version != before.version + 1
            (self._singly if alone else together).append(index)
        if len(together) == 1:
            self._singly += together
            together = []
        self._together = [
            _Together(some, [moves[index] for index in some])
            for some in (together[first : first + MOST] for first in range(0, len(together), MOST))
        ]

    def write(self, connection: sqlite3.Connection, now: datetime) -> list[SwapAnswer]:
        """See ports.Store.swap; inside an open transaction."""
        answers: list[SwapAnswer | None] = [None] * len(self._moves)
        singly = self._singly
        for together in self._together:
            if together.write(connection):
                for index in together.indexes:
                    answers[index] = Swapped(self._moves[index].after)
            else:
                singly = [*singly, *together.indexes]
        late = monotonic() - self._made_at > _LATE
        for index in singly:
            move = self._moves[index]
            answers[index] = Stale(move.before.task_id) if late and move.if_dead else swap_one(connection, move, now)
        alone = [self._moves[index] for index in singly if type(answers[index]) is Swapped]
        counts.write(connection, counts.of_moves(alone))
        return answers  # type: ignore[return-value]


class _Together:
    """Rows that are written by one statement: each column that changes in one of them is set in all."""

    def __init__(self, indexes: Sequence[int], moves: Sequence[Move]) -> None:
        self.indexes = indexes
        changed = changed_columns((move.before for move in moves), (move.after for move in moves))
        ids = tuple(move.before.task_id for move in moves)
        written = {"task_id": ids, "version": changed.pop("version")} | changed
        self._statements: list[tuple[str, list[Any]]] = [
            (update_sql(batch.shared, batch.varying, batch.size), batch.given)
            for batch in batches(tuple(written), list(written.values()), always=2)
        ]
        counted = "completed_at" in changed or "purged_at" in changed
        self._ended = counts.of_moves(moves) if counted else {}

    def write(self, connection: sqlite3.Connection) -> bool:
        """Write them; nothing at all unless every one could be written."""
        connection.execute("SAVEPOINT onerow_swap")
        try:
            written = sum(connection.execute(sql, given).rowcount for sql, given in self._statements)
            whole = written == len(self.indexes)
        except sqlite3.IntegrityError:
            whole = False  # a row that can't be written; found singly
        if whole:
            counts.write(connection, self._ended)
        else:
            connection.execute("ROLLBACK TO onerow_swap")
        connection.execute("RELEASE onerow_swap")
        return whole


def swap_one(connection: sqlite3.Connection, move: Move, now: datetime) -> SwapAnswer:
    """Write one move."""
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
        raise RowRefused(f"task {task.task_id} breaks a rule of the table; run: onerow doctor")
    return str(row[0])
