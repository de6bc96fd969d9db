"""Finds rows that cannot be decoded, and the moves that quarantine them so that other tasks continue."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from onerow.core.corruption import NUMBERS, as_far_as_readable, problems, quarantine
from onerow.core.status import Status
from onerow.core.task import COLUMN, TIME_FIELDS
from onerow.ports import Move
from onerow.stores.postgres.fast.binary import Texts, column, moment
from onerow.stores.postgres.pipelining import Connection
from onerow.stores.postgres.rows import COLUMNS
from onerow.stores.postgres.statements import quoted

_TIMES = frozenset(TIME_FIELDS)
_LIMIT = 1_000

_SUSPECT = " OR ".join(
    [f"status NOT IN ({', '.join(repr(status.value) for status in Status)})"]
    + [f"{COLUMN[field]} > {most}" for field, most in NUMBERS.items() if field != "priority"]
    + ["run_at < '0001-01-02'", "(run_at > '9999-12-31' AND run_at <> 'infinity')"]
)


def moves(connection: Connection, schema: str, ids: Sequence[str], now: datetime) -> list[Move]:
    """Return the moves that quarantine the unreadable ones of these rows."""
    sql = f"SELECT {COLUMNS} FROM {quoted(schema)}.task_queue WHERE task_id = ANY (%s)"
    rows = connection.execute(sql, (column(Texts, list(ids)),), binary=True).fetchall()
    tasks = [as_far_as_readable(row, _read) for row in rows]
    return [Move(task, quarantine(task, now)) for task in tasks if problems(task)]


def suspects(connection: Connection, schema: str) -> list[str]:
    """Return the ids of rows with an invalid number, status or time; scans the table, since no index helps."""
    sql = f"SELECT task_id FROM {quoted(schema)}.task_queue WHERE {_SUSPECT} LIMIT {_LIMIT}"
    return [task_id for (task_id,) in connection.execute(sql, prepare=False).fetchall()]


def _read(field: str, value: Any) -> Any:
    if value is None:
        return None
    if field in _TIMES:
        return moment(value)
    return Status(value) if field == "status" else value
