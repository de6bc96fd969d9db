"""Quarantine of unreadable rows, after an operation failed on them, so that other tasks keep running."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from onerow.core.corruption import NUMBERS, as_far_as_readable, problems, quarantine
from onerow.core.status import Status
from onerow.core.task import COLUMN, TIME_FIELDS
from onerow.core.times import read
from onerow.ports import Move, Swapped
from onerow.stores.sqlite import counts
from onerow.stores.sqlite.rows import COLUMNS
from onerow.stores.sqlite.swapping import swap_one

_TIMES = frozenset(TIME_FIELDS)
_FLAGS = frozenset({"cancel_requested", "own_retries"})
_MANY = 1_000

_SUSPECT = " OR ".join(
    [f"status NOT IN ({', '.join(repr(status.value) for status in Status)})"]
    + [f"typeof({COLUMN[field]}) IN ('text', 'blob', 'real')" for field in NUMBERS]
    + [f"{COLUMN[field]} > {most}" for field, most in NUMBERS.items()]
)


def set_aside(connection: sqlite3.Connection, ids: Sequence[Any], now: datetime) -> int:
    """Quarantine the unreadable ones of these rows; return how many. Call it inside a transaction."""
    done = 0
    for task_id in ids:
        row = connection.execute(f"SELECT {COLUMNS} FROM task_queue WHERE task_id = ?", (task_id,)).fetchone()
        if row is None or not problems(found := as_far_as_readable(row, _read)):
            continue
        move = Move(found, quarantine(found, now))
        if isinstance(swap_one(connection, move, now), Swapped):
            counts.write(connection, counts.of_moves([move]))
            done += 1
    return done


def suspects(connection: sqlite3.Connection) -> list[Any]:
    """Return the ids of rows with an invalid number or status; this scans the whole table."""
    rows = connection.execute(f"SELECT task_id FROM task_queue WHERE {_SUSPECT} LIMIT {_MANY}").fetchall()
    return [task_id for (task_id,) in rows]


def _read(field: str, value: Any) -> Any:
    if value is None:
        return None
    if field in _TIMES:
        return read(value)
    if field == "status":
        return Status(value)
    return bool(value) if field in _FLAGS else value
