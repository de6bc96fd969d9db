"""Rows ↔ tasks: times and JSON are text, statuses are words, flags are 0 or 1."""

from datetime import datetime
from operator import itemgetter
from typing import Any

import msgspec

from onerow.core.status import PROCESSING, Status
from onerow.core.task import COLUMN, DEFAULTS, FIELDS, TIME_FIELDS, Task, non_default_fields
from onerow.core.times import read, spell
from onerow.stores.shared.task_rows import task_reader

_decode = msgspec.json.Decoder().decode

COLUMNS = ", ".join(COLUMN[field] for field in FIELDS)

ID = itemgetter(FIELDS.index("task_id"))
"""Gets the task id from a row of COLUMNS."""
CONVERTED = frozenset({*TIME_FIELDS, "status", "cancel_requested", "own_retries"})
"""Fields whose values must be converted for SQLite."""


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


task_of = task_reader(time=read, convert={"cancel_requested": bool, "own_retries": bool})
"""Return the task in a row of COLUMNS."""


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
    row: tuple[Any, ...],
    pipeline: str,
    phase: str,
    worker: str,
    now: datetime,
    until: datetime,
    slot: int | None = None,
    key_slot: int | None = None,
) -> Task:
    """Return the claimed task from (rowid, *CLAIMED_COLUMNS) as read before the claim's write; see rules.claimed."""
    # All fields in their order, which a test checks: keyword arguments would take three times as long, and this call is
    # most of what a claim does in Python.
    (
        _, task_id, user_id, title, created_at, run_at, elapsed_time, priority, attempt, max_retries, token, version,
        limit_key, payload, results, logs, rare,
    ) = row  # fmt: skip
    (
        parent_id, scheduled_time, cancel_requested, retry_count, own_retries, retry_base, crash_count, rescue_count,
        generation, error, error_class, unique_key, unique_for, held_key, held_until, children, steps, signals,
        progress, metadata,
    ) = _RARE_DEFAULTS if rare is None else _decode(rare)  # fmt: skip
    return Task(
        task_id, pipeline, phase, user_id, title, parent_id,
        read(created_at), None if scheduled_time is None else read(scheduled_time), read(run_at), now, None, now, elapsed_time,
        priority,
        PROCESSING, None, bool(cancel_requested), attempt + 1, retry_count, max_retries, bool(own_retries), retry_base,
        crash_count, rescue_count, generation, error, error_class,
        worker, until, token + 1, version + 1,
        limit_key, slot, key_slot, unique_key, unique_for, held_key, None if held_until is None else read(held_until), children, None,
        payload, results, steps, signals, progress, metadata, logs,
    )  # fmt: skip
