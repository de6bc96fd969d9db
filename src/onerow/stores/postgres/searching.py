"""Keyset pagination, and searches with a time limit."""

from datetime import timedelta
from functools import partial
from operator import itemgetter
from typing import Any

from onerow.core.corruption import decoded
from onerow.core.filters import SORTING, Filter, Order, Position, is_selective, reads_text
from onerow.core.status import Status
from onerow.core.task import Task
from onerow.ports import LeaseRecord, Page, Search
from onerow.stores.postgres.fast.binary import moment
from onerow.stores.postgres.filters import page_sql, where_sql
from onerow.stores.postgres.pipelining import Connection, read_transaction
from onerow.stores.postgres.rows import ID, task_of
from onerow.stores.shared import paging
from onerow.stores.shared.paging import find_page
from onerow.stores.shared.task_rows import lease_reader

_FEW = 5_000
_lease_of = lease_reader(time=moment)


def find(connection: Connection, table: str, where: Filter, limit: int, order: Order, after: str | None) -> Page:
    """See ports.Store.find."""
    return find_page(partial(_page, connection, table, where, order), limit, order, after)


def leases(
    connection: Connection, table: str, pipeline: str | None, phase: str | None, limit: int
) -> list[LeaseRecord]:
    """See ports.Store.leases."""
    phases = frozenset({phase} if phase is not None else ())
    condition, given = where_sql(Filter(statuses=frozenset({Status.PROCESSING}), pipeline=pipeline, phases=phases))
    sql = (
        f"SELECT task_id, pipeline, type, token, leased_by, leased_until FROM {table} "
        f"WHERE {condition} ORDER BY leased_until, task_id LIMIT %s"
    )
    with read_transaction(connection):
        cursor = connection.execute(sql, [*given, limit], binary=True, prepare=False)
    return decoded(cursor.fetchall(), _lease_of, itemgetter(0))


def search(
    connection: Connection,
    table: str,
    where: Filter,
    limit: int,
    order: Order,
    after: str | None,
    within: timedelta,
) -> Search:
    """See ports.Searchable.search."""
    processing_or_parked = where.statuses == {Status.PROCESSING} or (bool(where.parked) and not reads_text(where))
    direct = order == "due" or processing_or_parked or is_selective(where) or _is_ordered(where, order)
    if direct or _has_few_open(connection, table, where):
        page = find(connection, table, where, limit, order, after)
        return Search(page.tasks, page.next)
    return paging.search(
        partial(_page, connection, table, where, order),
        partial(_end_of_batch, connection, table, where, order),
        limit,
        order,
        after,
        within,
    )


def _is_ordered(where: Filter, order: Order) -> bool:
    """Whether the index task_missed has exactly the tasks that are asked for, in this order."""
    one_status = where.statuses in ({Status.FAILED}, {Status.CANCELLED})
    return one_status and where == Filter(statuses=where.statuses) and SORTING[order].column == "completed_at"


def _has_few_open(connection: Connection, table: str, where: Filter) -> bool:
    """Whether only waiting tasks are asked for and they are few, so that sorting is faster than a scan."""
    if where.statuses != {Status.WAITING}:
        return False
    sql = f"SELECT count(*) FROM (SELECT FROM {table} WHERE {{}} LIMIT {_FEW}) AS few"
    conditions = {False: "status = 'waiting' AND awaiting IS NULL", True: "awaiting IS NOT NULL"}
    with read_transaction(connection):
        counted = [
            connection.execute(sql.format(conditions[parked]))
            for parked in conditions
            if where.parked in (None, parked)
        ]
    return all(row[0] < _FEW for cursor in counted for row in cursor.fetchall())


def _page(
    connection: Connection,
    table: str,
    where: Filter,
    order: Order,
    limit: int,
    after: Position | None,
    until: Position | None,
) -> list[Task]:
    sql, given = page_sql(table, where, order, limit, after, until)
    with read_transaction(connection):
        cursor = connection.execute(sql, given, binary=True, prepare=False)
    return decoded(cursor.fetchall(), task_of, ID)


def _end_of_batch(
    connection: Connection, table: str, where: Filter, order: Order, after: Position | None, length: int
) -> Position | None:
    """Return the position of the last of the next `length` rows in the scanned index; None: fewer are left."""
    by, descending = SORTING[order]
    direction = SORTING[order].direction
    condition = "completed_at IS NOT NULL" if by == "completed_at" else "leased_by IS NULL"
    given: list[Any] = []
    if by == "created_at" and where.user_id:
        condition += " AND user_id = %s AND user_id <> ''"
        given.append(where.user_id)
    if after is not None:
        condition += f" AND ({by}, task_id) {'<' if descending else '>'} (%s, %s)"
        given += after
    with read_transaction(connection):
        cursor = connection.execute(
            f"SELECT {by}, task_id FROM {table} WHERE {condition} "
            f"ORDER BY {by} {direction}, task_id {direction} LIMIT 1 OFFSET %s",
            (*given, length - 1),
            binary=True,
            prepare=False,
        )
    row = cursor.fetchone()
    return None if row is None else (moment(row[0]), row[1])
