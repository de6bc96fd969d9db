"""Task counts: open tasks are counted through indexes, ended tasks by counters that every write maintains."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any

from onerow.core.corruption import UnreadableRows
from onerow.core.filters import Filter
from onerow.core.status import ENDS, PROCESSING, WAITING, Status
from onerow.core.task import Task
from onerow.core.times import read
from onerow.ports import Move, TaskCount
from onerow.stores.sqlite.filters import where_sql
from onerow.stores.sqlite.statements import statement

Group = tuple[str, str, Status, datetime | None]
"""Pipeline, phase, status, purged_at."""
Change = dict[tuple[str, str, Status], int]
"""Changes to the counters of ended tasks, by pipeline, phase and status."""

_ADD = (
    "INSERT INTO onerow_tally (pipeline, type, status, count) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (pipeline, type, status) DO UPDATE SET count = count + excluded.count"
)


def of_moves(moves: Sequence[Move]) -> Change:
    """Return what moves change: tasks that they end, reopen or purge."""
    change: Counter[Group] = Counter(map(_group, (move.after for move in moves)))
    change.subtract(Counter(map(_group, (move.before for move in moves))))
    return _of_ended(change)


def of_tasks(tasks: Iterable[Task]) -> Change:
    """Return what inserting these tasks adds; only tasks inserted as ended count."""
    return _of_ended(Counter(map(_group, tasks)))


def of_removed(tasks: Iterable[Task]) -> Change:
    """Return what removing these tasks changes."""
    return {group: -count for group, count in of_tasks(tasks).items()}


def write(connection: sqlite3.Connection | sqlite3.Cursor, change: Change) -> None:
    """Update the counters, in the transaction that changes the tasks."""
    if change:
        connection.executemany(_ADD, [(*group, count) for group, count in change.items()])


_group = attrgetter("pipeline", "phase", "status", "purged_at")


def _of_ended(change: "Counter[Group]") -> Change:
    return {
        (pipeline, phase, status): count
        for (pipeline, phase, status, purged_at), count in change.items()
        if count and purged_at is None and status in ENDS
    }


def count(connection: sqlite3.Connection, where: Filter) -> list[TaskCount]:
    """See ports.Store.count. Columns that the filter fixes are not selected, so an index can cover the query."""
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
    """Count every task by pipeline, phase and status, from indexes and counters only."""
    waiting: dict[tuple[str, str], tuple[int, str]] = {}
    for pipeline, phase, number, oldest in connection.execute(statement("census_waiting")).fetchall():
        before, first = waiting.get((pipeline, phase), (0, oldest))
        waiting[pipeline, phase] = (before + number, min(first, oldest))
    found = [
        TaskCount(*group, WAITING, False, number, _read_run_at(connection, oldest))
        for group, (number, oldest) in waiting.items()
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
    """Count the ended tasks from the rows: the values that the counters should have."""
    return connection.execute(
        "SELECT pipeline, type, status, count(*) FROM task_queue "
        "WHERE completed_at IS NOT NULL AND status IN ('completed', 'failed', 'cancelled') AND purged_at IS NULL "
        "GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
    ).fetchall()
