"""Rows ↔ tasks: times as text, statuses as words, JSON as it stands."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import astuple

from onerow.core.status import PROCESSING, Status
from onerow.core.task import COLUMN, DEFAULTS, FIELDS, TIME_FIELDS, Task
from onerow.core.times import read, spell

COLUMNS = ", ".join(COLUMN[field] for field in FIELDS)

_TIMES = tuple(FIELDS.index(field) for field in TIME_FIELDS)
_STATUS = FIELDS.index("status")
_FLAGS = (FIELDS.index("cancel_requested"), FIELDS.index("own_retries"))
_STATUS_OF = {status.value: status for status in Status}

values_of: Callable[[Task], tuple[Any, ...]] = astuple  # in the order of FIELDS


_NOTHING = object()  # equal to no value: the field has no default, or one that only the clock knows
_FIELDS_WITH_DEFAULTS = tuple((field, DEFAULTS.get(field, _NOTHING)) for field in FIELDS)


def row_of(task: Task) -> dict[str, Any]:
    """Its values as SQLite takes them, by field, less those that are the column's default.

    What needn't be bound costs nothing; a None costs most, since the driver asks each whether it would adapt itself.
    """
    return {
        field: to_sql(value)
        for (field, default), value in zip(_FIELDS_WITH_DEFAULTS, values_of(task), strict=True)
        if value is not default and value != default
    }


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


# A claim knows what it writes, so it reads only the rest.
CLAIMED_FIELDS = tuple(
    field
    for field in FIELDS
    if field not in ("pipeline", "phase", "status", "awaiting", "leased_by", "leased_until", "started_at", "completed_at", "updated_at", "slot", "key_slot", "purged_at")
)  # fmt: skip
CLAIMED_COLUMNS = ", ".join(f"t.{COLUMN[field]}" for field in CLAIMED_FIELDS)


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
    """The task in a row of CLAIMED_COLUMNS as read just before the claim wrote to it; see rules.claimed."""
    (
        task_id, user_id, title, parent_id, created_at, scheduled_time, run_at, elapsed_time, priority,
        cancel_requested, attempt, retry_count, max_retries, own_retries, retry_base, crash_count, generation, error,
        error_class, token, version, limit_key, unique_key, unique_for, held_key, held_until, children, payload,
        results, steps, signals, progress, metadata, logs,
    ) = row  # fmt: skip
    return Task(
        task_id, pipeline, phase, user_id, title, parent_id,
        read(created_at), scheduled_time and read(scheduled_time), read(run_at), now, None, now, elapsed_time,
        priority, PROCESSING, None, bool(cancel_requested), attempt + 1, retry_count, max_retries, bool(own_retries),
        retry_base, crash_count, generation, error, error_class, worker, until, token + 1, version + 1,
        limit_key, slot, key_slot, unique_key, unique_for, held_key, held_until and read(held_until), children, None,
        payload, results, steps, signals, progress, metadata, logs,
    )  # fmt: skip
