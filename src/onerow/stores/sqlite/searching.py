"""Finding: pages by key through a named index, and searches that stop when their time is over."""

import base64
import sqlite3
from datetime import timedelta
from time import monotonic
from typing import Any, Literal

import msgspec

from onerow.core.corruption import decoded
from onerow.core.errors import BadInput
from onerow.core.status import Status
from onerow.core.task import Task
from onerow.core.times import read, spell
from onerow.ports import Filter, LeaseRecord, Order, Page, Search
from onerow.stores.sqlite import title_index
from onerow.stores.sqlite.filters import ORDERS, index_for, where_sql
from onerow.stores.sqlite.rows import COLUMNS, ID, task_of

_encode = msgspec.json.Encoder().encode
_FIRST_STRETCH = 500
_FEW = 5_000
_WALKED = ("task_created", "task_user", "task_ended", "task_erred")  # in an order that a search can stop in

Place = list[str]  # the moment by which rows are ordered, and the id


def find(connection: sqlite3.Connection, where: Filter, limit: int, order: Order, after: str | None) -> Page:
    """See ports.Store.find."""
    start = None if after is None else _read_cursor(after)
    tasks = _page(connection, where, order, index_for(where, order), limit + 1, start, None)
    if len(tasks) <= limit:
        return Page(tasks)
    return Page(tasks[:limit], _write_cursor(_place(tasks[limit - 1], order)) if limit else None)


def leases(connection: sqlite3.Connection, pipeline: str | None, phase: str | None, limit: int) -> list[LeaseRecord]:
    """See ports.Store.leases."""
    phases = frozenset({phase} if phase is not None else ())
    condition, given = where_sql(Filter(statuses=frozenset({Status.PROCESSING}), pipeline=pipeline, phases=phases))
    rows = connection.execute(
        f"SELECT task_id, pipeline, type, token, leased_by, leased_until FROM task_queue INDEXED BY task_leased "
        f"WHERE {condition} AND leased_until IS NOT NULL ORDER BY leased_until, task_id LIMIT ?",
        (*given, limit),
    ).fetchall()
    return [
        LeaseRecord(task_id, name, type_, token, holder, read(until))
        for task_id, name, type_, token, holder, until in rows
    ]


def search(
    connection: sqlite3.Connection,
    where: Filter,
    limit: int,
    order: Literal["newest", "latest"],
    after: str | None,
    within: timedelta,
) -> Search:
    """See ports.Glance.search: stretch by stretch, each twice as long as the last, until the time is over."""
    index = index_for(where, order)
    if where.title_text is not None and index in _WALKED:
        numbers = title_index.candidates(connection, where.title_text.casefold())
        if numbers is not None:
            start = None if after is None else _read_cursor(after)
            tasks = _page(connection, where, order, "", limit + 1, start, None, numbers)
            return Search(tasks[:limit], _write_cursor(_place(tasks[limit - 1], order)) if len(tasks) > limit else None)
    if index == "task_erred" and order == "newest" and not _has_few(connection, "error_class IS NOT NULL"):
        index = "task_user" if where.user_id else "task_created"  # sorting them all would take longer than there is
    elif index == "task_erred" and order == "newest":
        index = ""
    if index not in _WALKED or _has_few_open(connection, where):
        page = find(connection, where, limit, order, after)
        return Search(page.tasks, page.next)
    until = monotonic() + within.total_seconds()
    place = None if after is None else _read_cursor(after)
    found: list[Task] = []
    stretch, looked_at = _FIRST_STRETCH, 0
    while True:
        end = _end_of_stretch(connection, where, order, index, place, stretch)
        found += _page(connection, where, order, index, limit + 1 - len(found), place, end)
        if len(found) > limit:
            return Search(found[:limit], _write_cursor(_place(found[limit - 1], order)))
        if end is None:
            return Search(found)
        looked_at += stretch
        place = end
        if monotonic() >= until:
            return Search(found, _write_cursor(place), read(place[0]), looked_at)
        stretch = min(stretch * 2, 16_000)


def _has_few_open(connection: sqlite3.Connection, where: Filter) -> bool:
    """Whether a question about waiting tasks alone is answered sooner by sorting them than by walking all rows."""
    if {status.value for status in where.statuses} != {"waiting"}:
        return False
    return _has_few(connection, "status = 'waiting' AND awaiting IS NULL") and _has_few(
        connection, "awaiting IS NOT NULL"
    )


def _has_few(connection: sqlite3.Connection, condition: str) -> bool:
    """Whether so few rows meet the condition of a partial index that sorting them is no matter."""
    sql = f"SELECT count(*) FROM (SELECT 1 FROM task_queue WHERE {condition} LIMIT ?)"
    return bool(connection.execute(sql, (_FEW,)).fetchone()[0] < _FEW)


def _page(
    connection: sqlite3.Connection,
    where: Filter,
    order: Order,
    index: str,
    limit: int,
    after: Place | None,
    until: Place | None,
    numbers: list[int] | None = None,
) -> list[Task]:
    condition, given = where_sql(where)
    column, direction = ORDERS[order]
    if column == "completed_at":
        condition += " AND completed_at IS NOT NULL"
    further, sooner = ("<", ">=") if direction == "DESC" else (">", "<=")
    for place, comparison in ((after, further), (until, sooner)):
        if place is not None:
            condition += f" AND ({column}, task_id) {comparison} (?, ?)"
            given += place
    source = f"task_queue INDEXED BY {index}" if index else "task_queue"
    if numbers is not None:
        source = "(SELECT value AS chosen FROM json_each(?)) CROSS JOIN task_queue"
        condition = f"task_queue.rowid = chosen AND {condition}"
        given.insert(0, _encode(numbers).decode())
    rows = connection.execute(
        f"SELECT {COLUMNS} FROM {source} WHERE {condition} ORDER BY {column} {direction}, task_id {direction} LIMIT ?",
        (*given, limit),
    ).fetchall()
    return decoded(rows, task_of, ID)


def _end_of_stretch(
    connection: sqlite3.Connection, where: Filter, order: Order, index: str, after: Place | None, length: int
) -> Place | None:
    """The last place of the next `length` rows of an index; None: fewer are left."""
    column, _ = ORDERS[order]
    base = {"task_user": "user_id = ? AND user_id <> ''", "task_erred": "error_class IS NOT NULL"}.get(index, "TRUE")
    given: list[Any] = [where.user_id] if index == "task_user" else []
    condition = f"{base} AND {column} IS NOT NULL"
    if after is not None:
        condition += f" AND ({column}, task_id) < (?, ?)"
        given += after
    row = connection.execute(
        f"SELECT {column}, task_id FROM task_queue INDEXED BY {index} WHERE {condition} "
        f"ORDER BY {column} DESC, task_id DESC LIMIT 1 OFFSET ?",
        (*given, length - 1),
    ).fetchone()
    return None if row is None else list(row)


def _place(task: Task, order: Order) -> Place:
    return [spell(getattr(task, ORDERS[order][0])), task.task_id]


def _write_cursor(place: Place) -> str:
    return base64.urlsafe_b64encode(_encode(place)).decode()


def _read_cursor(text: str) -> Place:
    try:
        return list(msgspec.json.decode(base64.urlsafe_b64decode(text), type=tuple[str, str]))
    except Exception:
        raise BadInput(f"{text!r} is not where a page ended; pass a page's `next` as it is", field="after") from None
