"""Rows ↔ tasks: times and JSON are text, statuses are words, flags are 0 or 1."""

from datetime import datetime
from operator import itemgetter
from typing import Any

import msgspec

from onerow.core.status import Status
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


_FLAGS = {"cancel_requested": "bool(cancel_requested)", "own_retries": "bool(own_retries)"}

task_of = task_reader("row", {"row": FIELDS}, _FLAGS, time=read)
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
_RARE_VALUES = "rare_defaults if rare is None else decode(rare)"

claimed_task = task_reader(
    "row, pipeline, phase, worker, now, until, slot=None, key_slot=None",
    {"row": ("rowid", *CLAIMED_FIELDS, "rare"), _RARE_VALUES: _RARE},
    _FLAGS
    | {
        "pipeline": "pipeline",
        "phase": "phase",
        "started_at": "now",
        "completed_at": "None",
        "updated_at": "now",
        "status": "PROCESSING",
        "awaiting": "None",
        "attempt": "attempt + 1",
        "leased_by": "worker",
        "leased_until": "until",
        "token": "token + 1",
        "version": "version + 1",
        "slot": "slot",
        "key_slot": "key_slot",
        "purged_at": "None",
    },
    time=read,
    rare_defaults=_RARE_DEFAULTS,
    decode=_decode,
)
"""Return the claimed task from (rowid, *CLAIMED_COLUMNS) as read before the claim's write; see rules.claimed."""
