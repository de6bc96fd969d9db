"""Rows ↔ tasks."""

from collections.abc import Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any

from onerow.core.status import PROCESSING, Status
from onerow.core.task import COLUMN, DEFAULTS, FIELDS, JSON_FIELDS, TIME_FIELDS, Task, columns_of, non_default_fields
from onerow.core.times import read
from onerow.stores.postgres.fast.binary import Bigs, Column, Flags, Integers, Jsons, Moments, Shorts, Texts, moment

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
"""What each field's column is."""

ID = itemgetter(FIELDS.index("task_id"))
"""The id in a row of COLUMNS."""
_TIMES = tuple(FIELDS.index(field) for field in TIME_FIELDS)
_STATUS = FIELDS.index("status")
_STATUS_OF = {status.value: status for status in Status}

# What a task may have at birth; the rest then has its column's default, and an insert need not bind it.
BORN_FIELDS = (
    "task_id", "pipeline", "phase", "user_id", "title", "parent_id", "created_at", "scheduled_time", "run_at",
    "updated_at", "priority", "awaiting", "max_retries", "own_retries", "token", "version", "limit_key", "unique_key",
    "unique_for", "held_key", "payload_json", "metadata_json",
)  # fmt: skip
NEW_FIELDS = frozenset(BORN_FIELDS)

# Nearly always each row has its own; so that the same statement serves every batch, they are never sent as shared.
_OWN = frozenset({"task_id", "payload_json"})


def is_newborn(task: Task) -> bool:
    """Whether nothing has happened to the task, so that BORN_FIELDS tell all of it."""
    return NEW_FIELDS.issuperset(non_default_fields(task))


def told_together(tasks: Sequence[Task]) -> tuple[dict[str, tuple[Any, ...]], dict[str, Any]]:
    """As `told`, of many: fields in which they differ, with the value of each; fields in which they don't, with that."""
    own: dict[str, tuple[Any, ...]] = {}
    shared: dict[str, Any] = {}
    for field, values in zip(FIELDS, columns_of(tasks), strict=True):
        if field in _OWN or values.count(values[0]) != len(values):
            own[field] = values
        elif field not in DEFAULTS or values[0] != DEFAULTS[field]:
            shared[field] = values[0]
    return own, shared


def task_of(row: Sequence[Any]) -> Task:
    """The task in a row of COLUMNS."""
    found = list(row)
    for index in _TIMES:
        if found[index] is not None:
            found[index] = moment(found[index])
    found[_STATUS] = _STATUS_OF[found[_STATUS]]
    return Task(*found)


def task_of_texts(row: Sequence[Any]) -> Task:
    """The task in a row that came as JSON: times as core.times spells them."""
    found = list(row)
    for index in _TIMES:
        if found[index] is not None:
            found[index] = read(found[index])
    found[_STATUS] = _STATUS_OF[found[_STATUS]]
    return Task(*found)


# A claim knows much of what it writes, so it reads only the rest. Each column that comes costs the server and us; numbers
# that are nearly always 0 come as one, NULL when all of them are.
_SELDOM = ("cancel_requested", "retry_count", "own_retries", "retry_base", "crash_count", "rescue_count", "generation")
CLAIMED_FIELDS = tuple(
    field
    for field in FIELDS
    if field not in ("status", "awaiting", "leased_by", "completed_at", "updated_at", "purged_at", *_SELDOM)
)
_SELDOM_AS_ONE = (
    f"CASE WHEN {' OR '.join(f'ours.{COLUMN[field]}' + ('' if KINDS[field] is Flags else ' <> 0') for field in _SELDOM)} "
    f"THEN ARRAY[{', '.join(f'ours.{COLUMN[field]}::integer' for field in _SELDOM)}] END"
)
CLAIMED_COLUMNS = ", ".join([*(f"ours.{COLUMN[field]}" for field in CLAIMED_FIELDS), _SELDOM_AS_ONE, "ours.ctid"])
_ALL_ZERO = (0,) * len(_SELDOM)


def claimed_task(row: Sequence[Any], worker: str) -> Task:
    """The task in a row of CLAIMED_COLUMNS, as the claim left it; its place is not the task's. See rules.claimed."""
    (
        task_id, pipeline, phase, user_id, title, parent_id, created_at, scheduled_time, run_at, started_at,
        elapsed_time, priority, attempt, max_retries, error, error_class, leased_until, token, version, limit_key, slot,
        key_slot, unique_key, unique_for, held_key, held_until, children, payload, results, steps, signals, progress,
        metadata, logs, seldom, _,
    ) = row  # fmt: skip
    cancel_requested, retry_count, own_retries, retry_base, crash_count, rescue_count, generation = seldom or _ALL_ZERO
    now: datetime = moment(started_at)
    return Task(
        task_id, pipeline, phase, user_id, title, parent_id, moment(created_at),
        None if scheduled_time is None else moment(scheduled_time), moment(run_at), now, None, now, elapsed_time,
        priority, PROCESSING, None, cancel_requested == 1, attempt, retry_count, max_retries, own_retries == 1,
        retry_base, crash_count, rescue_count, generation, error, error_class, worker, moment(leased_until), token,
        version, limit_key, slot, key_slot, unique_key, unique_for, held_key,
        None if held_until is None else moment(held_until), children, None,
        payload, results, steps, signals, progress, metadata, logs,
    )  # fmt: skip
