"""How many tasks stand where: open ones counted in their indexes, ended ones kept as counters by whoever writes."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any

from onerow.core.corruption import UnreadableRows
from onerow.core.status import ENDS, PROCESSING, WAITING, Status
from onerow.core.task import Task
from onerow.core.times import read
from onerow.ports import Filter, Move, TaskCount
from onerow.stores.sqlite.filters import where_sql
from onerow.stores.sqlite.statements import statement

Place = tuple[str, str, Status, datetime | None]
"""Pipeline, phase, status, and when it was purged."""
Change = dict[tuple[str, str, Status], int]
"""So many more tasks that have ended, by pipeline, phase and status."""

_ADD = (
    "INSERT INTO onerow_tally (pipeline, type, status, count) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (pipeline, type, status) DO UPDATE SET count = count + excluded.count"
)


def of_moves(moves: Sequence[Move]) -> Change:
    """What these moves change: tasks that they end, bring back or bury."""
    change: Counter[Place] = Counter(map(_place, (move.after for move in moves)))
    change.subtract(Counter(map(_place, (move.before for move in moves))))
    return _of_ended(change)


def of_tasks(tasks: Iterable[Task]) -> Change:
    """What these tasks add if they were put in as ended already."""
    return _of_ended(Counter(map(_place, tasks)))


def of_removed(tasks: Iterable[Task]) -> Change:
    """What it changes that these tasks are gone."""
    return {place: -count for place, count in of_tasks(tasks).items()}


def write(connection: sqlite3.Connection | sqlite3.Cursor, change: Change) -> None:
    """Count it; in the transaction that makes it so."""
    if change:
        connection.executemany(_ADD, [(*place, count) for place, count in change.items()])


_place = attrgetter("pipeline", "phase", "status", "purged_at")


def _of_ended(change: "Counter[Place]") -> Change:
    return {
        (pipeline, phase, status): count
        for (pipeline, phase, status, purged_at), count in change.items()
        if count and purged_at is None and status in ENDS
    }


def count(connection: sqlite3.Connection, where: Filter) -> list[TaskCount]:
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
            oldest_at = first and _read_run_at(connection, first)
            found.append(TaskCount(pipeline, phase, _read_status(connection, status), bool(parked), number, oldest_at))
    return sorted(found, key=lambda tally: (tally.pipeline, tally.phase, tally.status, tally.parked))


def store_counts(connection: sqlite3.Connection) -> list[TaskCount]:
    """Every task, by place; nothing is read but indexes and counters."""
    waiting: dict[tuple[str, str], tuple[int, str]] = {}
    for pipeline, phase, number, oldest in connection.execute(statement("census_waiting")).fetchall():
        before, first = waiting.get((pipeline, phase), (0, oldest))
        waiting[pipeline, phase] = (before + number, min(first, oldest))
    found = [
        TaskCount(*place, WAITING, False, number, _read_run_at(connection, oldest))
        for place, (number, oldest) in waiting.items()
    ]
    found += count(connection, Filter(statuses=frozenset({WAITING}), parked=True))
    found += count(connection, Filter(statuses=frozenset({PROCESSING}), parked=False))
    ended = connection.execute("SELECT pipeline, type, status, count FROM onerow_tally WHERE count > 0").fetchall()
    found += [TaskCount(pipeline, phase, Status(status), False, number) for pipeline, phase, status, number in ended]
    return sorted(found, key=lambda tally: (tally.pipeline, tally.phase, tally.status, tally.parked))


def _read_run_at(connection: sqlite3.Connection, text: Any) -> datetime:
    try:
        return read(text)
    except (ValueError, TypeError):
        raise UnreadableRows(_ids(connection, "run_at", text)) from None


def _read_status(connection: sqlite3.Connection, text: Any) -> Status:
    try:
        return Status(text)
    except ValueError:
        raise UnreadableRows(_ids(connection, "status", text)) from None


def _ids(connection: sqlite3.Connection, column: str, value: Any) -> list[Any]:
    sql = f"SELECT task_id FROM task_queue WHERE {column} = ? LIMIT 1000"
    return [task_id for (task_id,) in connection.execute(sql, (value,)).fetchall()]


def recount(connection: sqlite3.Connection) -> list[tuple[str, str, str, int]]:
    """The ended tasks, counted row by row: what the counters should say."""
    return connection.execute(
        "SELECT pipeline, type, status, count(*) FROM task_queue "
        "WHERE completed_at IS NOT NULL AND status IN ('completed', 'failed', 'cancelled') AND purged_at IS NULL "
        "GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
    ).fetchall()
