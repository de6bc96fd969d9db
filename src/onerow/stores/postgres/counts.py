"""How many tasks stand where: open ones counted in their indexes, ended ones counted as they end and come back."""

import time
from collections.abc import Sequence
from typing import Any

from onerow.core.corruption import UnreadableRows
from onerow.core.status import PROCESSING, Status
from onerow.core.task import Task
from onerow.ports import Move, TaskCount
from onerow.stores.postgres.connections import Connection, Connections
from onerow.stores.postgres.fast.binary import moment
from onerow.stores.postgres.quarantine import suspects
from onerow.stores.postgres.statements import quoted, statement
from onerow.stores.postgres.transactions import looking

_ADD_UP_EVERY = 30.0
_ENDED = "status IN ('completed', 'failed', 'cancelled') AND purged_at IS NULL"


Place = tuple[str, str, Status]  # pipeline, phase and status in which ended tasks are counted
Change = tuple[Place | None, Place | None]  # one fewer here, one more there


def change(move: Move) -> Change:
    """What a move changes in the counts."""
    before, after = move.before, move.after
    if before.completed_at is after.completed_at and before.purged_at is after.purged_at:
        return _NOTHING
    left = None if before.status is PROCESSING else _place(before)
    entered = _place(after)
    return _NOTHING if left == entered else (left, entered)


_NOTHING: Change = (None, None)


def _place(task: Task) -> Place | None:
    return (task.pipeline, task.phase, task.status) if task.ended and task.purged_at is None else None


def counting_sql(schema: str, *, fewer: bool, more: bool) -> str:
    """What follows `WITH written AS (…)` to count what was written: fewer in one place, more in another."""
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
    """The parameters of counting_sql."""
    found: dict[str, str] = {}
    for name, place in zip(("fewer", "more"), change, strict=True):
        if place is not None:
            pipeline, phase, status = place
            found |= {f"{name}_pipeline": pipeline, f"{name}_phase": phase, f"{name}_status": status}
    return found


def counting_insert(schema: str, insert: str) -> str:
    """An insert (without RETURNING) that counts those of its rows that have ended already."""
    return (
        f"WITH new AS ({insert} RETURNING task_id, pipeline, type, status, purged_at), "
        f"counted AS (INSERT INTO {quoted(schema)}.onerow_tally (pipeline, type, status, count) "
        f"SELECT pipeline, type, status, count(*) FROM new WHERE {_ENDED} GROUP BY pipeline, type, status) "
        f"SELECT task_id FROM new"
    )


def store_counts(connection: Connection, schema: str) -> list[TaskCount]:
    """Every task, by place; nothing is read but indexes and counts."""
    with looking(connection):
        cursor = connection.execute(statement("census", schema), binary=True)
    return tallied(connection, schema, cursor.fetchall())


def tallied(connection: Connection, schema: str, rows: Sequence[tuple[Any, ...]]) -> list[TaskCount]:
    """Counts as the server gave them; raises UnreadableRows where a row has a status or a time that is none."""
    try:
        return [
            TaskCount(pipeline, phase, Status(status), parked, number, None if oldest is None else moment(oldest))
            for pipeline, phase, status, parked, number, oldest in rows
        ]
    except (ValueError, OverflowError):
        raise UnreadableRows(suspects(connection, schema)) from None


class CounterUpdater:
    """Adds the lines up, now and then, in a process that writes them."""

    def __init__(self, door: Connections, schema: str) -> None:
        self._door = door
        self._schema = schema
        self._next = time.monotonic() + _ADD_UP_EVERY

    def tick(self) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _ADD_UP_EVERY
            self.add_up()

    def add_up(self) -> None:
        self._door.write(lambda connection: connection.execute(statement("tally", self._schema)))

    def is_right(self) -> bool:
        """Whether the counts are what is there; both are looked at in one moment."""
        sql = (
            f"SELECT NOT EXISTS ((SELECT pipeline, type, status, count(*) FROM {quoted(self._schema)}.task_queue "
            f"WHERE {_ENDED} AND completed_at IS NOT NULL GROUP BY 1, 2, 3) EXCEPT SELECT pipeline, type, status, sum(count) "
            f"FROM {quoted(self._schema)}.onerow_tally GROUP BY 1, 2, 3)"
        )
        return self._door.read(lambda connection: connection.execute(sql).fetchone()) == (True,)

    def repair(self) -> None:
        """Count anew; writers wait meanwhile."""

        def repair(connection: Connection) -> None:
            table = quoted(self._schema)
            with connection.transaction():
                connection.execute(f"LOCK TABLE {table}.onerow_tally IN EXCLUSIVE MODE")
                connection.execute(f"DELETE FROM {table}.onerow_tally")
                connection.execute(
                    f"INSERT INTO {table}.onerow_tally SELECT pipeline, type, status, count(*) FROM {table}.task_queue "
                    f"WHERE {_ENDED} GROUP BY 1, 2, 3"
                )

        self._door.write(repair)
