"""Rows ↔ tasks: times as text, statuses as words, JSON as it stands."""

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
"""The id in a row of COLUMNS."""
_TIMES = tuple(FIELDS.index(field) for field in TIME_FIELDS)
_STATUS = FIELDS.index("status")
_FLAGS = (FIELDS.index("cancel_requested"), FIELDS.index("own_retries"))
FOREIGN = frozenset({*TIME_FIELDS, "status", "cancel_requested", "own_retries"})
"""Fields whose values SQLite doesn't take as they are."""
_STATUS_OF = {status.value: status for status in Status}


def row_of(task: Task) -> dict[str, Any]:
    """Its values as SQLite takes them, by field, less those that are the column's default.

    What needn't be bound costs nothing; a None costs most, since the driver asks each whether it would adapt itself.
    """
    return {field: to_sql(value) for field, value in non_default_fields(task).items()}


def to_sql(value: Any) -> Any:
    """The value in a type that the driver takes as it is."""
    kind = type(value)
    if kind is str or kind is int:
        return value
    if kind is datetime:
        return spell(value)
    if kind is Status:
        return value._value_
    return int(value) if kind is bool else value


def literal(value: Any) -> str:
    """A default as SQL spells it."""
    value = to_sql(value)
    return "NULL" if value is None else f"'{value}'" if type(value) is str else str(value)


def task_of(row: Sequence[Any]) -> Task:
    """The task in a row of COLUMNS."""
    found = list(row)
    for index in _TIMES:
        if found[index] is not None:
            found[index] = read(found[index])
    found[_STATUS] = _STATUS_OF[found[_STATUS]]
    for index in _FLAGS:
        found[index] = bool(found[index])
    return Task(*found)


# A claim knows what it writes, so it reads only the rest. Of that the driver makes an object per column, which costs
# more than the claim itself: what nearly always has its default comes as one column, NULL when all of it has.
CLAIMED_FIELDS = (
    "task_id", "user_id", "title", "created_at", "run_at", "elapsed_time", "priority", "attempt", "max_retries",
    "token", "version", "limit_key", "payload_json", "results_json", "logs_json",
)  # fmt: skip
_SELDOM = (
    "parent_id", "scheduled_time", "cancel_requested", "retry_count", "own_retries", "retry_base", "crash_count",
    "rescue_count", "generation", "error", "error_class", "unique_key", "unique_for", "held_key", "held_until",
    "children", "steps_json", "signals_json", "progress_json", "metadata_json",
)  # fmt: skip
_SELDOM_AS_JSON = (
    f"CASE WHEN {' AND '.join(f't.{COLUMN[field]} IS {literal(DEFAULTS[field])}' for field in _SELDOM)} THEN NULL "
    f"ELSE json_array({', '.join(f't.{COLUMN[field]}' for field in _SELDOM)}) END"
)
CLAIMED_COLUMNS = ", ".join([*(f"t.{COLUMN[field]}" for field in CLAIMED_FIELDS), _SELDOM_AS_JSON])
_SELDOM_DEFAULTS = tuple(to_sql(DEFAULTS[field]) for field in _SELDOM)


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
    """The task in a row of its rowid and CLAIMED_COLUMNS as read just before the claim wrote to it; see rules.claimed."""
    (
        _, task_id, user_id, title, created_at, run_at, elapsed_time, priority, attempt, max_retries,
        token, version, limit_key, payload, results, logs, seldom,
    ) = row  # fmt: skip
    (
        parent_id, scheduled_time, cancel_requested, retry_count, own_retries, retry_base, crash_count, rescue_count,
        generation, error, error_class, unique_key, unique_for, held_key, held_until, children, steps,
        signals, progress, metadata,
    ) = _SELDOM_DEFAULTS if seldom is None else _decode(seldom)  # fmt: skip
    return Task(
        task_id, pipeline, phase, user_id, title, parent_id,
        read(created_at), scheduled_time and read(scheduled_time), read(run_at), now, None, now, elapsed_time,
        priority, PROCESSING, None, bool(cancel_requested), attempt + 1, retry_count, max_retries, bool(own_retries),
        retry_base, crash_count, rescue_count, generation, error, error_class, worker, until, token + 1, version + 1,
        limit_key, slot, key_slot, unique_key, unique_for, held_key, held_until and read(held_until), children, None,
        payload, results, steps, signals, progress, metadata, logs,
    )  # fmt: skip
