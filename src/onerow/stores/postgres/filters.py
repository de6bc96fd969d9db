"""Translates a Filter to SQL. Statuses are literals, because the planner matches partial indexes by literals only."""

from collections.abc import Iterable
from typing import Any

from onerow.core.filters import SORTING, Filter, Order, Position, equal_terms, prefix_range, time_terms
from onerow.core.status import ENDS, Status
from onerow.stores.postgres.case_folding import containing
from onerow.stores.postgres.rows import COLUMNS


def page_sql(
    table: str, where: Filter, order: Order, limit: int, after: Position | None, until: Position | None
) -> tuple[str, list[Any]]:
    """Return the SQL and parameters for tasks in order, after one position and up to another."""
    condition, given = where_sql(where)
    by, descending = SORTING[order]
    direction = SORTING[order].direction
    if by == "completed_at":
        condition += " AND completed_at IS NOT NULL"
    further, sooner = ("<", ">=") if descending else (">", "<=")
    for position, comparison in ((after, further), (until, sooner)):
        if position is not None:
            condition += f" AND ({by}, task_id) {comparison} (%s, %s)"
            given += position
    ordered = f"ORDER BY {by} {direction}, task_id {direction} LIMIT %s"
    page = f"SELECT {COLUMNS} FROM {table} WHERE {condition}"
    own_index = where.statuses == {Status.PROCESSING} or where.leased_by or where.parent_id or where.held_until_before
    if by != "created_at" or own_index:
        return f"{page} {ordered}", [*given, limit]
    if where.statuses and Status.PROCESSING not in where.statuses:
        return f"{page} AND leased_by IS NULL {ordered}", [*given, limit]
    # Two scans, because the index by age excludes processing tasks.
    rest, leased = f"({page} AND leased_by IS NULL {ordered})", f"({page} AND leased_by IS NOT NULL {ordered})"
    return f"{rest} UNION ALL {leased} {ordered}", [*given, limit, *given, limit, limit]


def where_sql(where: Filter) -> tuple[str, list[Any]]:
    """Return the condition and its parameters."""
    terms, given = _conditions(where)
    terms += _for_indexes(where)
    if not where.hidden:
        terms.append("purged_at IS NULL")
    return " AND ".join(terms) or "TRUE", given


def _for_indexes(where: Filter) -> list[str]:
    """Return conditions that every match meets, and without which the planner does not use partial indexes."""
    terms = []
    if where.user_id:
        terms.append("user_id <> ''")
    if where.lease_ended_before is not None:
        terms.append("leased_by IS NOT NULL")
    if where.statuses == {Status.WAITING} and where.parked is False:
        terms.append("awaiting IS NULL")
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
        term(f"{column} = %s", value)
    if where.phases:
        term("type = ANY (%s)", sorted(where.phases))
    if where.parked is not None:
        parked = "status = 'waiting' AND awaiting IS NOT NULL"
        terms.append(parked if where.parked else f"NOT ({parked})")
    if where.cancel_requested is not None:
        terms.append("cancel_requested" if where.cancel_requested else "NOT cancel_requested")
    for column, comparison, moment in time_terms(where):
        term(f"{column} {comparison} %s", moment)
    for column, text in (("error", where.error_text), ("title", where.title_text)):
        if text is not None:
            term(f"{column} ~ %s", containing(text))
    if where.text is not None:
        needle = containing(where.text)
        term("(title ~ %s OR error ~ %s OR task_id ~ %s OR payload::text ~ %s)", *[needle] * 4)
    for column, paths in ((_readable("payload"), where.payload), (_readable("metadata"), where.metadata)):
        for path, value in paths:
            found = f"CASE json_typeof(({column}) #> %s) WHEN 'null' THEN 'null' ELSE ({column}) #>> %s END"
            term(f"{found} = %s", steps := path.split("."), steps, value)
    if where.id_prefix is not None:
        term("task_id >= %s AND task_id < %s", *prefix_range(where.id_prefix))
    if where.ahead_of is not None:
        term("(priority, run_at, task_id) < (%s, %s, %s)", *where.ahead_of)
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


def _readable(column: str) -> str:
    """Return an expression for a JSON column from which values can be extracted.

    PostgreSQL stores the escape of NUL in a json column, but can't extract anything from such a value. A program that
    writes to the table directly can store it.
    """
    return (
        rf"CASE WHEN strpos({column}::text, '\u0000') = 0 THEN {column} "
        rf"ELSE regexp_replace({column}::text, '(?<!\\)((?:\\\\)*)\\u0000', '\1', 'g')::json END"
    )
