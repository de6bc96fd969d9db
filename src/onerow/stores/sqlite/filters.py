"""Translate a Filter to SQL. Statuses are literals, because SQLite matches partial indexes against literals only."""

import sqlite3
from collections.abc import Iterable
from typing import Any

import msgspec

from onerow.core.filters import Filter, Order, contains, equal_terms, prefix_range, text_at, time_terms
from onerow.core.status import ENDS, OPEN, Status
from onerow.core.times import spell


def index_for(where: Filter, order: Order) -> str:
    """Return the index for INDEXED BY: without statistics SQLite would pick the index that avoids a sort."""
    ended = order in ("ended", "latest")
    if where.id_prefix is not None:
        return "sqlite_autoindex_task_queue_1"
    if where.parent_id is not None:
        return "task_child"
    if where.held_key is not None:
        return "task_unique"
    if where.statuses == {Status.PROCESSING} or where.leased_by is not None or where.lease_ended_before is not None:
        return "task_leased"
    if where.parked or where.awaiting is not None:
        return "task_parked"
    if where.held_until_before is not None:
        return "task_remembered"
    if where.error_class is not None or (where.statuses == {Status.FAILED} and ended):
        return "task_erred"
    if ended:
        return "task_ended"
    if where.statuses == {Status.WAITING} and where.parked is False and (where.phases or order == "due"):
        return "task_ready"
    if where.user_id:
        return "task_user"
    return "" if order == "due" else "task_created"


def add_functions(connection: sqlite3.Connection) -> None:
    """Add SQL functions: case-insensitive Unicode search, and the payload value at a dotted path."""
    connection.create_function("onerow_has", 2, contains, deterministic=True)
    connection.create_function("onerow_at", 2, _at, deterministic=True)


def _at(payload: str, path: str) -> str | None:
    try:
        value = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeError, TypeError):
        return None  # one unreadable payload must not fail the whole search
    return text_at(value, path)


def where_sql(where: Filter) -> tuple[str, list[Any]]:
    """Return the WHERE condition and its parameters."""
    terms, given = _conditions(where)
    terms += _for_indexes(where)
    # Only ended tasks are purged; without this condition an index can cover queries on open tasks.
    open_only = bool(where.statuses) and where.statuses <= OPEN
    if not where.hidden and not open_only:
        terms.append("purged_at IS NULL")
    return " AND ".join(terms) or "TRUE", given


def _for_indexes(where: Filter) -> list[str]:
    """Return conditions that every match meets, and without which SQLite does not use its partial indexes."""
    terms = []
    if where.user_id:
        terms.append("user_id <> ''")
    if where.lease_ended_before is not None:
        terms.append("leased_by IS NOT NULL")
    if where.statuses == {Status.FAILED}:
        terms.append("error_class IS NOT NULL")
    if where.statuses and where.statuses <= ENDS:
        terms.append("completed_at IS NOT NULL")
    return terms


def _conditions(where: Filter) -> tuple[list[str], list[Any]]:
    terms: list[str] = []
    given: list[Any] = []

    def term(sql: str, *values: Any) -> None:
        terms.append(sql)
        given.extend(values)

    if where.statuses:
        terms.append(_statuses(where.statuses))
    for column, value in equal_terms(where):
        term(f"{column} = ?", value)
    if where.phases:
        term(f"type IN ({', '.join('?' * len(where.phases))})", *sorted(where.phases))
    if where.parked is not None:
        terms.append("awaiting IS NOT NULL" if where.parked else "awaiting IS NULL")
    if where.cancel_requested is not None:
        terms.append(f"cancel_requested = {int(where.cancel_requested)}")
    for column, comparison, moment in time_terms(where):
        term(f"{column} {comparison} ?", spell(moment))
    for column, text in (("error", where.error_text), ("title", where.title_text)):
        if text is not None:
            term(f"onerow_has({column}, ?)", text.casefold())
    if where.text is not None:
        needle = where.text.casefold()
        term(
            "(onerow_has(title, ?) OR onerow_has(error, ?) OR onerow_has(task_id, ?) OR onerow_has(payload, ?))",
            *([needle] * 4),
        )
    for path, value in where.payload:
        term("onerow_at(payload, ?) = ?", path, value)
    for path, value in where.metadata:
        term("onerow_at(metadata, ?) = ?", path, value)
    if where.id_prefix is not None:
        term("task_id >= ? AND task_id < ?", *prefix_range(where.id_prefix))
    if where.ahead_of is not None:
        priority, run_at, task_id = where.ahead_of
        term("(priority, run_at, task_id) < (?, ?, ?)", priority, spell(run_at), task_id)
    for each in where.all_of:
        term(*_group([each]))
    if where.any_of:
        term(*_group(where.any_of))
    if where.none_of:
        # IS NOT TRUE, because a comparison with NULL is neither true nor false.
        excluded, *values = _group(where.none_of)
        term(f"{excluded} IS NOT TRUE", *values)
    return terms, given


def _group(filters: Iterable[Filter]) -> list[Any]:
    """Return the condition that at least one of the filters holds, and its parameters."""
    parts, given = [], []
    for each in filters:
        terms, values = _conditions(each)
        parts.append(" AND ".join(terms) or "TRUE")
        given += values
    return [f"({' OR '.join(f'({part})' for part in parts)})", *given]


def _statuses(statuses: frozenset[Status]) -> str:
    names = ", ".join(f"'{status.value}'" for status in sorted(statuses))
    return f"status IN ({names})" if len(statuses) > 1 else f"status = {names}"
