"""Task counts by pipeline, phase and status: open tasks from indexes, ended tasks from counter rows."""

import time
from collections.abc import Sequence
from typing import Any

from psycopg import errors

from onerow.core.corruption import UnreadableRows
from onerow.core.status import PROCESSING, Status
from onerow.core.task import Task
from onerow.ports import Move, TaskCount
from onerow.stores.postgres.connections import Connections
from onerow.stores.postgres.fast.binary import moment
from onerow.stores.postgres.pipelining import Connection, read_transaction
from onerow.stores.postgres.quarantine import suspects
from onerow.stores.postgres.statements import quoted, statement

_COMPACT_EVERY = 30.0
_ENDED = "status IN ('completed', 'failed', 'cancelled') AND purged_at IS NULL"


CountKey = tuple[str, str, Status]  # pipeline, phase and status of ended tasks
Change = tuple[CountKey | None, CountKey | None]  # the counter to decrement, the counter to increment


def change(move: Move) -> Change:
    """Return how a move changes the counters."""
    before, after = move.before, move.after
    if move.remove:
        return None if before.status is PROCESSING else _count_key(before), None
    if before.completed_at is after.completed_at and before.purged_at is after.purged_at:
        return _NO_CHANGE
    left = None if before.status is PROCESSING else _count_key(before)
    entered = _count_key(after)
    return _NO_CHANGE if left == entered else (left, entered)


_NO_CHANGE: Change = (None, None)


def _count_key(task: Task) -> CountKey | None:
    return (task.pipeline, task.phase, task.status) if task.ended and task.purged_at is None else None


def counting_sql(schema: str, *, fewer: bool, more: bool) -> str:
    """Return the CTEs after `WITH written AS (…)` that write counter rows for the written tasks."""
    parts = [""]
    for name, sign, counted in (("fewer", "-", fewer), ("more", "", more)):
        if counted:
            parts.append(
                f"{name} AS (INSERT INTO {quoted(schema)}.onerow_tally (pipeline, type, status, count) "
                f"SELECT %({name}_pipeline)s, %({name}_phase)s, %({name}_status)s, {sign}count(*) FROM written "
                f"HAVING count(*) > 0)"
            )
    return ", ".join(parts)


def given(change: Change) -> dict[str, str]:
    """Return the parameters of counting_sql."""
    parameters: dict[str, str] = {}
    for name, key in zip(("fewer", "more"), change, strict=True):
        if key is not None:
            pipeline, phase, status = key
            parameters |= {f"{name}_pipeline": pipeline, f"{name}_phase": phase, f"{name}_status": status}
    return parameters


def counting_insert(schema: str, insert: str) -> str:
    """Return an insert (given without RETURNING) that also counts rows which have already ended."""
    return (
        f"WITH new AS ({insert} RETURNING task_id, pipeline, type, status, purged_at), "
        f"counted AS (INSERT INTO {quoted(schema)}.onerow_tally (pipeline, type, status, count) "
        f"SELECT pipeline, type, status, count(*) FROM new WHERE {_ENDED} GROUP BY pipeline, type, status) "
        f"SELECT task_id FROM new"
    )


def store_counts(connection: Connection, schema: str) -> list[TaskCount]:
    """Count all tasks, reading only indexes and counter rows.

    Counter rows are for all tenants, so that a tenant's role may not read them: the tasks that it reads are counted.
    """
    try:
        with read_transaction(connection):
            cursor = connection.execute(statement("census", schema), binary=True)
    except errors.InsufficientPrivilege:
        connection.rollback()
        cursor = connection.execute(f"{group_sql(schema)} WHERE purged_at IS NULL {GROUPED}", binary=True)
    return task_counts(connection, schema, cursor.fetchall())


def group_sql(schema: str) -> str:
    """Return the beginning of a query that counts tasks; a condition and GROUPED follow."""
    return (
        f"SELECT pipeline, type, status, status = 'waiting' AND awaiting IS NOT NULL, count(*), "
        f"min(run_at) FILTER (WHERE status = 'waiting') FROM {quoted(schema)}.task_queue"
    )


GROUPED = "GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"


def task_counts(connection: Connection, schema: str, rows: Sequence[tuple[Any, ...]]) -> list[TaskCount]:
    """Convert count rows; raise UnreadableRows if a status or a time is invalid."""
    try:
        return [
            TaskCount(pipeline, phase, Status(status), parked, number, None if oldest is None else moment(oldest))
            for pipeline, phase, status, parked, number, oldest in rows
        ]
    except (ValueError, OverflowError):
        raise UnreadableRows(suspects(connection, schema)) from None


class CounterUpdater:
    """Merges counter rows from time to time, in every process that writes them."""

    def __init__(self, connections: Connections, schema: str) -> None:
        self._connections = connections
        self._schema = schema
        self._next = time.monotonic() + _COMPACT_EVERY

    def tick(self) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _COMPACT_EVERY
            self.compact()

    def compact(self) -> None:
        self._connections.write(lambda connection: connection.execute(statement("tally", self._schema)))

    def is_correct(self) -> bool:
        """Whether the counters match the table, in one snapshot."""
        sql = (
            f"SELECT NOT EXISTS ((SELECT pipeline, type, status, count(*) FROM {quoted(self._schema)}.task_queue "
            f"WHERE {_ENDED} AND completed_at IS NOT NULL GROUP BY 1, 2, 3) EXCEPT SELECT pipeline, type, status, sum(count) "
            f"FROM {quoted(self._schema)}.onerow_tally GROUP BY 1, 2, 3)"
        )
        return self._connections.read(lambda connection: connection.execute(sql).fetchone()) == (True,)

    def repair(self) -> None:
        """Recompute all counters; concurrent writers wait for it."""

        def repair(connection: Connection) -> None:
            table = quoted(self._schema)
            with connection.transaction():
                connection.execute(f"LOCK TABLE {table}.onerow_tally IN EXCLUSIVE MODE")
                connection.execute(f"DELETE FROM {table}.onerow_tally")
                connection.execute(
                    f"INSERT INTO {table}.onerow_tally SELECT pipeline, type, status, count(*) FROM {table}.task_queue "
                    f"WHERE {_ENDED} GROUP BY 1, 2, 3"
                )

        self._connections.write(repair)
