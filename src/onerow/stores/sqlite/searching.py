"""Keyset pagination through a named index, and searches with a time limit."""

import sqlite3
from datetime import timedelta
from functools import partial
from operator import itemgetter
from typing import Any

from onerow.core.corruption import UnreadableRows, decoded
from onerow.core.filters import SORTING, Filter, Order, Position, reads_text
from onerow.core.status import Status
from onerow.core.task import Task
from onerow.core.times import read, spell
from onerow.ports import LeaseRecord, Page, Search
from onerow.stores.shared import paging
from onerow.stores.shared.paging import find_page
from onerow.stores.shared.task_rows import lease_reader
from onerow.stores.sqlite.filters import index_for, where_sql
from onerow.stores.sqlite.rows import COLUMNS, ID, task_of

_lease_of = lease_reader(time=read)
_FEW = 5_000
# Indexes in the order of the results, so that a search can stop and resume.
_SCANNED = ("task_created", "task_user", "task_ended", "task_erred")


def find(connection: sqlite3.Connection, where: Filter, limit: int, order: Order, after: str | None) -> Page:
    """See ports.Store.find."""
    return find_page(partial(_page, connection, where, order, index_for(where, order)), limit, order, after)


def leases(connection: sqlite3.Connection, pipeline: str | None, phase: str | None, limit: int) -> list[LeaseRecord]:
    """See ports.Store.leases."""
    phases = frozenset({phase} if phase is not None else ())
    condition, given = where_sql(Filter(statuses=frozenset({Status.PROCESSING}), pipeline=pipeline, phases=phases))
    rows = connection.execute(
        f"SELECT task_id, pipeline, type, token, leased_by, leased_until FROM task_queue INDEXED BY task_leased "
        f"WHERE {condition} ORDER BY leased_until, task_id LIMIT ?",
        (*given, limit),
    ).fetchall()
    return decoded(rows, _lease_of, itemgetter(0))


def search(
    connection: sqlite3.Connection,
    where: Filter,
    limit: int,
    order: Order,
    after: str | None,
    within: timedelta,
) -> Search:
    """See ports.Searchable.search."""
    index = index_for(where, order)
    if order in ("newest", "oldest"):
        by_age = "task_user" if where.user_id else "task_created"
        if index == "task_erred":  # sorting many of them would exceed the time limit
            index = "" if _has_few(connection, "error_class IS NOT NULL") else by_age
        elif index in ("task_ready", "task_parked") and where.awaiting is None and reads_text(where):
            index = by_age  # likewise for reading many of them
    if order == "due" or index not in _SCANNED or _has_few_open(connection, where):
        page = find(connection, where, limit, order, after)
        return Search(page.tasks, page.next)
    return paging.search(
        partial(_page, connection, where, order, index),
        partial(_end_of_batch, connection, where, order, index),
        limit,
        order,
        after,
        within,
    )


def _has_few_open(connection: sqlite3.Connection, where: Filter) -> bool:
    """Whether the filter selects waiting tasks only, and few enough to sort instead of scanning all rows."""
    if {status.value for status in where.statuses} != {"waiting"}:
        return False
    conditions = {False: "status = 'waiting' AND awaiting IS NULL", True: "awaiting IS NOT NULL"}
    return all(_has_few(connection, conditions[parked]) for parked in conditions if where.parked in (None, parked))


def _has_few(connection: sqlite3.Connection, condition: str) -> bool:
    """Whether few enough rows meet the condition of a partial index to sort them."""
    sql = f"SELECT count(*) FROM (SELECT 1 FROM task_queue WHERE {condition} LIMIT ?)"
    return bool(connection.execute(sql, (_FEW,)).fetchone()[0] < _FEW)


def _page(
    connection: sqlite3.Connection,
    where: Filter,
    order: Order,
    index: str,
    limit: int,
    after: Position | None,
    until: Position | None,
) -> list[Task]:
    condition, given = where_sql(where)
    column, descending = SORTING[order]
    direction = SORTING[order].direction
    if column == "completed_at":
        condition += " AND completed_at IS NOT NULL"
    further, sooner = ("<", ">=") if descending else (">", "<=")
    for position, comparison in ((after, further), (until, sooner)):
        if position is not None:
            condition += f" AND ({column}, task_id) {comparison} (?, ?)"
            given += [spell(position[0]), position[1]]
    source = f"task_queue INDEXED BY {index}" if index else "task_queue"
    rows = connection.execute(
        f"SELECT {COLUMNS} FROM {source} WHERE {condition} ORDER BY {column} {direction}, task_id {direction} LIMIT ?",
        (*given, limit),
    ).fetchall()
    return decoded(rows, task_of, ID)


def _end_of_batch(
    connection: sqlite3.Connection, where: Filter, order: Order, index: str, after: Position | None, length: int
) -> Position | None:
    """Return the position of the last of the next `length` rows in an index; None if fewer are left."""
    column, descending = SORTING[order]
    direction = SORTING[order].direction
    base = {"task_user": "user_id = ? AND user_id <> ''", "task_erred": "error_class IS NOT NULL"}.get(index, "TRUE")
    given: list[Any] = [where.user_id] if index == "task_user" else []
    condition = f"{base} AND {column} IS NOT NULL"
    if after is not None:
        condition += f" AND ({column}, task_id) {'<' if descending else '>'} (?, ?)"
        given += [spell(after[0]), after[1]]
    row = connection.execute(
        f"SELECT {column}, task_id FROM task_queue INDEXED BY {index} WHERE {condition} "
        f"ORDER BY {column} {direction}, task_id {direction} LIMIT 1 OFFSET ?",
        (*given, length - 1),
    ).fetchone()
    try:
        return None if row is None else (read(row[0]), row[1])
    except (ValueError, TypeError):
        raise UnreadableRows([row[1]]) from None
