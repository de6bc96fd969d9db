"""Rows ↔ tasks: times and JSON are text, statuses are words, flags are 0 or 1."""

from collections.abc import Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any

import msgspec

from onerow.core.status import PROCESSING, Status
from onerow.core.task import COLUMN, DEFAULTS, FIELDS, TIME_FIELDS, Task, non_default_fields
from onerow.core.times import read, spell

_decode = msgspec.json.Decoder().decode

COLUMNS = ", ".join(COLUMN[field] for field in FIELDS)

ID = itemgetter(FIELDS.index("task_id"))
"""Gets the task id from a row of COLUMNS."""
_TIMES = tuple(FIELDS.index(field) for field in TIME_FIELDS)
_STATUS = FIELDS.index("status")
_FLAGS = (FIELDS.index("cancel_requested"), FIELDS.index("own_retries"))
CONVERTED = frozenset({*TIME_FIELDS, "status", "cancel_requested", "own_retries"})
"""Fields whose values must be converted for SQLite."""
_STATUS_OF = {status.value: status for status in Status}


def row_of(task: Task) -> dict[str, Any]:
    """Return field → SQLite value, without fields that have the column's default.

    Binding is the main cost of an insert. None is the slowest value, since the driver looks for an adapter each time.
    """
    return {field: to_sql(value) for field, value in non_default_fields(task).items()}


def to_sql(value: Any) -> Any:
    """Convert a value to a type that the driver binds without an adapter."""
    kind = type(value)
    if kind is str or kind is int:
        return value
    if kind is datetime:
        return spell(value)
    if kind is Status:
        return value._value_
    return int(value) if kind is bool else value


def literal(value: Any) -> str:
    """Return a default value as an SQL literal."""
    value = to_sql(value)
    return "NULL" if value is None else f"'{value}'" if type(value) is str else str(value)


def task_of(row: Sequence[Any]) -> Task:
    """Return the task in a row of COLUMNS."""
    found = list(row)
    for index in _TIMES:
        if found[index] is not None:
            found[index] = read(found[index])
    found[_STATUS] = _STATUS_OF[found[_STATUS]]
    for index in _FLAGS:
        found[index] = bool(found[index])
    return Task(*found)


# A claim reads only the columns that it does not write. The driver creates an object per column, which costs more than
# the claim itself, so the rarely used columns are read as one JSON column, NULL if all of them have their defaults.
CLAIMED_FIELDS = (
    "task_id", "user_id", "title", "created_at", "run_at", "elapsed_time", "priority", "attempt", "max_retries",
    "token", "version", "limit_key", "payload_json", "results_json", "logs_json",
)  # fmt: skip
_RARE = (
    "parent_id", "scheduled_time", "cancel_requested", "retry_count", "own_retries", "retry_base", "crash_count",
    "rescue_count", "generation", "error", "error_class", "unique_key", "unique_for", "held_key", "held_until",
    "children", "steps_json", "signals_json", "progress_json", "metadata_json",
)  # fmt: skip
_RARE_AS_JSON = (
    f"CASE WHEN {' AND '.join(f't.{COLUMN[field]} IS {literal(DEFAULTS[field])}' for field in _RARE)} THEN NULL "
    f"ELSE json_array({', '.join(f't.{COLUMN[field]}' for field in _RARE)}) END"
)
CLAIMED_COLUMNS = ", ".join([*(f"t.{COLUMN[field]}" for field in CLAIMED_FIELDS), _RARE_AS_JSON])
_RARE_DEFAULTS = tuple(to_sql(DEFAULTS[field]) for field in _RARE)


def claimed_task(
    row: Sequence[Any],
    pipeline: str,
    phase: str,
    worker: str,
    now: datetime,
    until: datetime,
    slot: int | None = None,
    key_slot: int | None = None,
) -> Task:
    """Return the claimed task from (rowid, *CLAIMED_COLUMNS) as read before the claim's write; see rules.claimed."""
    (
        _, task_id, user_id, title, created_at, run_at, elapsed_time, priority, attempt, max_retries,
        token, version, limit_key, payload, results, logs, rare,
    ) = row  # fmt: skip
    (
        parent_id, scheduled_time, cancel_requested, retry_count, own_retries, retry_base, crash_count, rescue_count,
        generation, error, error_class, unique_key, unique_for, held_key, held_until, children, steps,
        signals, progress, metadata,
    ) = _RARE_DEFAULTS if rare is None else _decode(rare)  # fmt: skip
    return Task(
        task_id, pipeline, phase, user_id, title, parent_id,
        read(created_at), scheduled_time and read(scheduled_time), read(run_at), now, None, now, elapsed_time,
        priority, PROCESSING, None, bool(cancel_requested), attempt + 1, retry_count, max_retries, bool(own_retries),
        retry_base, crash_count, rescue_count, generation, error, error_class, worker, until, token + 1, version + 1,
        limit_key, slot, key_slot, unique_key, unique_for, held_key, held_until and read(held_until), children, None,
        payload, results, steps, signals, progress, metadata, logs,
    )  # fmt: skip
