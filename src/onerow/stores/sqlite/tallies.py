"""How many tasks stand where: open ones counted in their indexes, ended ones kept as counters by whoever writes."""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from onerow.core.status import ENDS, PROCESSING, WAITING, Status
from onerow.core.task import Task
from onerow.core.times import read
from onerow.ports import Filter, Move, SwapAnswer, Swapped, Tally
from onerow.stores.sqlite.filters import where_sql
from onerow.stores.sqlite.statements import statement

Place = tuple[str, str, Status]

_ADD = (
    "INSERT INTO onerow_tally (pipeline, type, status, count) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (pipeline, type, status) DO UPDATE SET count = count + excluded.count"
)


def note_moves(connection: sqlite3.Connection, moves: Sequence[Move], answers: Sequence[SwapAnswer]) -> None:
    """Count the tasks that these moves ended, brought back or buried; in the transaction that writes them."""
    change: dict[Place, int] = {}
    for move, answer in zip(moves, answers, strict=True):
        before, after = move.before, move.after
        if before.completed_at is after.completed_at and before.purged_at is after.purged_at:
            continue
        if type(answer) is Swapped:
            _leave(change, before)
            _enter(change, after)
    _write(connection, change)


def note_removed(connection: sqlite3.Connection, tasks: Iterable[Task]) -> None:
    """Count the tasks that are gone."""
    change: dict[Place, int] = {}
    for task in tasks:
        _leave(change, task)
    _write(connection, change)


def note_inserted(cursor: sqlite3.Cursor, tasks: Iterable[Task]) -> None:
    """Count the tasks that were put in as ended already."""
    change: dict[Place, int] = {}
    for task in tasks:
        _enter(change, task)
    _write(cursor, change)


def _enter(change: dict[Place, int], task: Task) -> None:
    if task.status in ENDS and task.purged_at is None:
        place = (task.pipeline, task.phase, task.status)
        change[place] = change.get(place, 0) + 1


def _leave(change: dict[Place, int], task: Task) -> None:
    if task.status in ENDS and task.purged_at is None:
        place = (task.pipeline, task.phase, task.status)
        change[place] = change.get(place, 0) - 1


def _write(connection: sqlite3.Connection | sqlite3.Cursor, change: dict[Place, int]) -> None:
    rows = [(*place, count) for place, count in change.items() if count]
    if rows:
        connection.executemany(_ADD, rows)


def count(connection: sqlite3.Connection, where: Filter) -> list[Tally]:
    """See ports.Store.count. What the filter fixes is not read from the row, so that an index alone may answer."""
    condition, given = where_sql(where)
    (status,) = where.statuses if len(where.statuses) == 1 else (None,)
    (phase,) = where.phases if len(where.phases) == 1 else (None,)
    fixed: list[Any] = [where.pipeline, phase, status, where.parked]
    columns = ["pipeline", "type", "status", "awaiting IS NOT NULL"]
    asked = [column for column, value in zip(columns, fixed, strict=True) if value is None]
    oldest = "min(run_at)" if status is WAITING else "min(CASE WHEN status = 'waiting' THEN run_at END)"
    if status is not None and status is not WAITING:
        oldest = "NULL"
    groups = f"GROUP BY {', '.join(map(str, range(3, len(asked) + 3)))}" if asked else ""
    rows = connection.execute(
        f"SELECT count(*), {', '.join([oldest, *asked])} FROM task_queue WHERE {condition} {groups}", given
    ).fetchall()
    found = []
    for number, first, *read_values in rows:
        values = iter(read_values)
        pipeline, phase, status, parked = (next(values) if value is None else value for value in fixed)
        if number:
            found.append(Tally(pipeline, phase, Status(status), bool(parked), number, first and read(first)))
    return sorted(found, key=lambda tally: (tally.pipeline, tally.phase, tally.status, tally.parked))


def census(connection: sqlite3.Connection) -> list[Tally]:
    """Every task, by place; nothing is read but indexes and counters."""
    waiting: dict[tuple[str, str], tuple[int, str]] = {}
    for pipeline, phase, number, oldest in connection.execute(statement("census_waiting")).fetchall():
        before, first = waiting.get((pipeline, phase), (0, oldest))
        waiting[pipeline, phase] = (before + number, min(first, oldest))
    found = [Tally(*place, WAITING, False, number, read(oldest)) for place, (number, oldest) in waiting.items()]
    found += count(connection, Filter(statuses=frozenset({WAITING}), parked=True))
    found += count(connection, Filter(statuses=frozenset({PROCESSING}), parked=False))
    ended = connection.execute("SELECT pipeline, type, status, count FROM onerow_tally WHERE count > 0").fetchall()
    found += [Tally(pipeline, phase, Status(status), False, number) for pipeline, phase, status, number in ended]
    return sorted(found, key=lambda tally: (tally.pipeline, tally.phase, tally.status, tally.parked))


def recount(connection: sqlite3.Connection) -> list[tuple[str, str, str, int]]:
    """The ended tasks, counted row by row: what the counters should say."""
    return connection.execute(
        "SELECT pipeline, type, status, count(*) FROM task_queue "
        "WHERE completed_at IS NOT NULL AND status IN ('completed', 'failed', 'cancelled') AND purged_at IS NULL "
        "GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
    ).fetchall()
