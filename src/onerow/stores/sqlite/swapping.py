"""Compare-and-swap: write moves, many rows in one statement, with an answer for each.

Usually every row is written, and the row count confirms it. If not, the batch is rolled back and written row by row to
find out which rows changed.
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
from onerow.stores.sqlite import counts, task_log
from onerow.stores.sqlite.bulk_write import MAX_ROWS, batches, delete_sql, update_sql
from onerow.stores.sqlite.rows import to_sql

_MAX_LOCK_WAIT = 1.0
"""Seconds. A rescue that waited longer for the write lock is not written, since the heartbeats waited for it too."""


class Swapping:
    """Moves with their SQL, prepared before the transaction, so that the write lock is held only while the SQL runs."""

    def __init__(self, moves: Sequence[Move]) -> None:
        self._moves = moves
        self._made_at = monotonic()
        self._singly: list[int] = []
        removed: list[int] = []
        together: list[int] = []
        for index, move in enumerate(moves):
            if move.remove:
                removed.append(index)
                continue
            before, after = move.before, move.after
            # These have an extra condition, or may conflict with another task's unique key.
            alone = move.if_dead or after.held_key != before.held_key or after.version != before.version + 1
            (self._singly if alone else together).append(index)
        if len(together) == 1:
            self._singly += together
            together = []
        self._together: list[_BatchUpdate | _BatchDelete] = [
            batch(some, [moves[index] for index in some])
            for batch, indexes in ((_BatchUpdate, together), (_BatchDelete, removed))
            for some in (indexes[first : first + MAX_ROWS] for first in range(0, len(indexes), MAX_ROWS))
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
        late = monotonic() - self._made_at > _MAX_LOCK_WAIT
        for index in singly:
            move = self._moves[index]
            answers[index] = Stale(move.before.task_id) if late and move.if_dead else swap_one(connection, move, now)
        alone = [self._moves[index] for index in singly if type(answers[index]) is Swapped]
        alone = [move for move in alone if not move.remove]
        counts.write(connection, counts.of_moves(alone))
        return answers  # type: ignore[return-value]


class _BatchUpdate:
    """Moves written by one statement: a column that changes in one row is set in all."""

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
        """Write all rows or none; return whether they were written."""
        connection.execute("SAVEPOINT onerow_swap")
        try:
            written = sum(connection.execute(sql, given).rowcount for sql, given in self._statements)
            whole = written == len(self.indexes)
        except sqlite3.IntegrityError:
            whole = False  # some row was refused; writing row by row finds it
        if whole:
            counts.write(connection, self._ended)
        else:
            connection.execute("ROLLBACK TO onerow_swap")
        connection.execute("RELEASE onerow_swap")
        return whole


class _BatchDelete:
    """Moves that delete their rows, by one statement."""

    def __init__(self, indexes: Sequence[int], moves: Sequence[Move]) -> None:
        self.indexes = indexes
        self._ids = [move.before.task_id for move in moves]
        (batch,) = batches(("task_id", "version"), [tuple(self._ids), tuple(move.before.version for move in moves)], 2)
        self._sql, self._given = delete_sql(batch.size), batch.given
        self._fewer = counts.of_removed(move.before for move in moves)

    def write(self, connection: sqlite3.Connection) -> bool:
        """Delete all rows or none; return whether they were deleted."""
        connection.execute("SAVEPOINT onerow_swap")
        whole = connection.execute(self._sql, self._given).rowcount == len(self.indexes)
        if whole:
            task_log.remove(connection, self._ids)
            counts.write(connection, self._fewer)
        else:
            connection.execute("ROLLBACK TO onerow_swap")
        connection.execute("RELEASE onerow_swap")
        return whole


def _remove_one(connection: sqlite3.Connection, task: Task) -> bool:
    sql = "DELETE FROM task_queue WHERE task_id = ? AND version = ?"
    if not connection.execute(sql, (task.task_id, task.version)).rowcount:
        return False
    task_log.remove(connection, [task.task_id])
    counts.write(connection, counts.of_removed([task]))
    return True


def swap_one(connection: sqlite3.Connection, move: Move, now: datetime) -> SwapAnswer:
    """Write one move."""
    before, after = move.before, move.after
    if move.remove:
        return Swapped(after) if _remove_one(connection, before) else Stale(before.task_id)
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
        raise RowRefused(f"task {task.task_id} breaks a rule of the table", fix="run: onerow doctor")
    return str(row[0])
