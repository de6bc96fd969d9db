"""Converts rows to tasks and tasks to columns."""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from onerow.core.status import PROCESSING
from onerow.core.task import (
    COLUMN,
    DEFAULTS,
    FIELDS,
    JSON_FIELDS,
    TIME_FIELDS,
    Task,
    columns_of,
    non_default_fields,
)
from onerow.core.times import read
from onerow.stores.postgres.fast.binary import Bigs, Column, Flags, Integers, Jsons, Moments, Shorts, Texts, moment
from onerow.stores.shared.task_rows import task_reader

COLUMNS = ", ".join(COLUMN[field] for field in FIELDS)

KINDS: dict[str, type[Column]] = dict.fromkeys(FIELDS, Texts)
KINDS |= dict.fromkeys(JSON_FIELDS, Jsons)
KINDS |= dict.fromkeys(TIME_FIELDS, Moments)
KINDS |= dict.fromkeys(("cancel_requested", "own_retries"), Flags)
KINDS |= dict.fromkeys(("elapsed_time", "token", "version"), Bigs)
KINDS |= dict.fromkeys(
    (
        "attempt", "retry_count", "max_retries", "retry_base", "crash_count", "rescue_count", "generation", "slot",
        "key_slot", "children",
    ),
    Integers,
)  # fmt: skip
KINDS |= {"priority": Shorts}
SQL_TYPE = {Texts: "text", Jsons: "json", Moments: "timestamptz", Flags: "boolean", Bigs: "bigint", Integers: "integer", Shorts: "smallint"}  # fmt: skip
"""The SQL type of each kind of column."""

ID = itemgetter(FIELDS.index("task_id"))
"""Gets the id from a row of COLUMNS."""

# Fields that a new task may set. All others have their column's default, so an insert does not bind them.
INSERT_FIELDS = (
    "task_id", "pipeline", "phase", "user_id", "title", "parent_id", "created_at", "scheduled_time", "run_at",
    "updated_at", "priority", "awaiting", "max_retries", "own_retries", "token", "version", "limit_key", "unique_key",
    "unique_for", "held_key", "payload_json", "metadata_json",
)  # fmt: skip
NEW_FIELDS = frozenset(INSERT_FIELDS)

# These nearly always differ between rows. Never sending them as shared keeps the number of distinct statements small.
_NEVER_SHARED = frozenset({"task_id", "payload_json"})


def is_new(task: Task) -> bool:
    """Whether only INSERT_FIELDS of the task differ from their defaults."""
    return NEW_FIELDS.issuperset(non_default_fields(task))


def varying_and_shared_fields(tasks: Sequence[Task]) -> tuple[dict[str, tuple[Any, ...]], dict[str, Any]]:
    """Return the fields in which tasks differ, with all values, and the non-default fields that they share."""
    varying: dict[str, tuple[Any, ...]] = {}
    shared: dict[str, Any] = {}
    for field, values in zip(FIELDS, columns_of(tasks), strict=True):
        if field in _NEVER_SHARED or values.count(values[0]) != len(values):
            varying[field] = values
        elif field not in DEFAULTS or values[0] != DEFAULTS[field]:
            shared[field] = values[0]
    return varying, shared


task_of = task_reader(time=moment)
"""Return the task in a row of COLUMNS."""
task_of_texts = task_reader(time=read)
"""Return the task in a row that was read as JSON, with times in the format of core.times."""


# A claim returns only the columns whose values it does not know. Each returned column costs time on both ends, so the
# numbers that are nearly always 0 are returned as one array, NULL if all of them are 0.
_RARE = ("cancel_requested", "retry_count", "own_retries", "retry_base", "crash_count", "rescue_count", "generation")
CLAIMED_FIELDS = tuple(
    field
    for field in FIELDS
    if field not in ("status", "awaiting", "leased_by", "completed_at", "updated_at", "purged_at", *_RARE)
)
_RARE_COLUMN = (
    f"CASE WHEN {' OR '.join(f'ours.{COLUMN[field]}' + ('' if KINDS[field] is Flags else ' <> 0') for field in _RARE)} "
    f"THEN ARRAY[{', '.join(f'ours.{COLUMN[field]}::integer' for field in _RARE)}] END"
)
CLAIMED_COLUMNS = ", ".join([*(f"ours.{COLUMN[field]}" for field in CLAIMED_FIELDS), _RARE_COLUMN, "ours.ctid"])

_ALL_ZERO = (0,) * len(_RARE)


def claimed_task(row: tuple[Any, ...], worker: str) -> Task:
    """Return the task in a row of CLAIMED_COLUMNS; see rules.claimed."""
    # All fields in their order, which a test checks: keyword arguments would take three times as long, and this call is
    # most of what a claim does in Python.
    (
        task_id, pipeline, phase, user_id, title, parent_id, created_at, scheduled_time, run_at, started_at,
        elapsed_time, priority, attempt, max_retries, error, error_class, leased_until, token, version, limit_key, slot,
        key_slot, unique_key, unique_for, held_key, held_until, children, payload, results, steps, signals, progress,
        metadata, logs, rare, _,
    ) = row  # fmt: skip
    cancel_requested, retry_count, own_retries, retry_base, crash_count, rescue_count, generation = rare or _ALL_ZERO
    now = moment(started_at)
    return Task(
        task_id, pipeline, phase, user_id, title, parent_id,
        moment(created_at), None if scheduled_time is None else moment(scheduled_time), moment(run_at), now, None, now,
        elapsed_time,
        priority,
        PROCESSING, None, cancel_requested == 1, attempt, retry_count, max_retries, own_retries == 1, retry_base,
        crash_count, rescue_count, generation, error, error_class,
        worker, moment(leased_until), token, version,
        limit_key, slot, key_slot, unique_key, unique_for, held_key,
        None if held_until is None else moment(held_until), children, None,
        payload, results, steps, signals, progress, metadata, logs,
    )  # fmt: skip
