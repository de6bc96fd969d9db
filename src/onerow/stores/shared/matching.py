"""Filters in Python: whether a task matches, for stores or conditions that the database can't evaluate."""

from datetime import datetime
from typing import Any, Literal

import msgspec

from onerow.core.task import Task
from onerow.ports import Filter


def equal_terms(where: Filter) -> list[tuple[str, str]]:
    """Return (column, value) for each text column that the filter compares for equality."""
    terms = (
        ("pipeline", where.pipeline),
        ("user_id", where.user_id),
        ("parent_id", where.parent_id),
        ("awaiting", where.awaiting),
        ("leased_by", where.leased_by),
        ("error_class", where.error_class),
        ("limit_key", where.limit_key),
        ("unique_key", where.unique_key),
        ("held_key", where.held_key),
    )
    return [(column, value) for column, value in terms if value is not None]


def time_terms(where: Filter) -> list[tuple[str, Literal["<=", ">="], datetime]]:
    """Return (column, comparison, time) for each time that the filter bounds; a row without the time does not match."""
    terms: tuple[tuple[str, Literal["<=", ">="], datetime | None], ...] = (
        ("run_at", "<=", where.due_before),
        ("leased_until", "<=", where.lease_ended_before),
        ("held_until", "<=", where.held_until_before),
        ("completed_at", "<=", where.ended_before),
        ("completed_at", ">=", where.ended_after),
        ("created_at", ">=", where.created_after),
        ("created_at", "<=", where.created_before),
    )
    return [(column, comparison, moment) for column, comparison, moment in terms if moment is not None]


def is_selective(where: Filter) -> bool:
    """Whether an index finds the few rows that can match."""
    named = (
        where.parent_id,
        where.held_key,
        where.leased_by,
        where.lease_ended_before,
        where.awaiting,
        where.held_until_before,
    )
    return any(value is not None for value in named)


def matches(row: Task, where: Filter) -> bool:
    """Whether the row meets every condition that the filter sets."""
    return (
        (where.hidden or row.purged_at is None)
        and (not where.statuses or row.status in where.statuses)
        and (not where.phases or row.phase in where.phases)
        and where.parked in (None, row.parked)
        and where.cancel_requested in (None, row.cancel_requested)
        and all(getattr(row, column) == value for column, value in equal_terms(where))
        and all(_is_within(getattr(row, column), sign, bound) for column, sign, bound in time_terms(where))
        and (where.ahead_of is None or (row.priority, row.run_at, row.task_id) < where.ahead_of)
        and matches_text(row, where)
    )


def matches_text(row: Task, where: Filter) -> bool:
    """Whether the row meets the conditions on texts and on the payload."""
    texts = (
        (where.error_text, (row.error,)),
        (where.title_text, (row.title,)),
        (where.text, (row.title, row.error, row.task_id, row.payload_json)),
    )
    return all(
        part is None or any(contains(text, part.casefold()) for text in row_texts) for part, row_texts in texts
    ) and all(text_at(row.payload, path) == value for path, value in where.payload)


def contains(text: Any, folded: str) -> bool:
    """Whether a text contains a case-folded part in any case."""
    return isinstance(text, str) and folded in text.casefold()


def text_at(value: Any, path: str) -> str | None:
    """Return the value at a dotted path: a string as it is, anything else as JSON, None if the path does not exist."""
    for step in path.split("."):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _is_within(moment: datetime | None, comparison: Literal["<=", ">="], bound: datetime) -> bool:
    return moment is not None and (moment <= bound if comparison == "<=" else moment >= bound)
