"""Translates a Filter to SQL. Statuses are literals, because the planner matches partial indexes by literals only."""

from typing import Any

from onerow.core.status import ENDS, Status
from onerow.ports import Filter, Order
from onerow.stores.postgres.case_folding import containing
from onerow.stores.postgres.rows import COLUMNS
from onerow.stores.shared.matching import equal_terms, time_terms
from onerow.stores.shared.paging import SORTING, Position

# PostgreSQL stores the escape of NUL in a json column, but cannot extract anything from such a value. A program that writes
# to the table directly can store it.
_PAYLOAD = (
    r"CASE WHEN strpos(payload::text, '\u0000') = 0 THEN payload "
    r"ELSE regexp_replace(payload::text, '(?<!\\)((?:\\\\)*)\\u0000', '\1', 'g')::json END"
)


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
    terms: list[str] = [] if where.hidden else ["purged_at IS NULL"]
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
    for path, value in where.payload:
        steps = path.split(".")
        term(
            f"CASE json_typeof(({_PAYLOAD}) #> %s) WHEN 'null' THEN 'null' ELSE ({_PAYLOAD}) #>> %s END = %s",
            steps,
            steps,
            value,
        )
    if where.user_id:
        terms.append("user_id <> ''")  # lets the planner use the partial index
    if where.lease_ended_before is not None:
        terms.append("leased_by IS NOT NULL")
    if where.ahead_of is not None:
        term("(priority, run_at, task_id) < (%s, %s, %s)", *where.ahead_of)
    return " AND ".join(terms) or "TRUE", given


def _statuses(statuses: frozenset[Status]) -> str:
    names = ", ".join(f"'{status.value}'" for status in sorted(statuses))
    sql = f"status IN ({names})" if len(statuses) > 1 else f"status = {names}"
    if statuses == {Status.PROCESSING}:
        return f"{sql} AND leased_by IS NOT NULL"  # lets the planner use the index of processing tasks
    if statuses <= ENDS:
        return f"{sql} AND completed_at IS NOT NULL"
    return sql
