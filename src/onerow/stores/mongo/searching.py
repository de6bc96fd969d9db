"""Keyset pagination, and searches with a time limit."""

import base64
from collections.abc import Iterator
from datetime import datetime, timedelta
from time import monotonic
from typing import Literal

import msgspec

from onerow.core.corruption import decoded
from onerow.core.errors import BadInput
from onerow.core.status import FAILED, OPEN
from onerow.core.task import Task
from onerow.core.times import read, spell
from onerow.ports import Filter, LeaseRecord, Order, Page, Search
from onerow.stores.mongo.connections import Collections
from onerow.stores.mongo.documents import ID, Document, moment_of, task_of
from onerow.stores.mongo.filters import ORDERS, client_filter, query_of
from onerow.stores.mongo.schema import A_TIME, PROCESSING

_encode = msgspec.json.Encoder().encode
_FIRST_BATCH, _MAX_BATCH = 500, 16_000

Position = tuple[datetime, str]  # the time that tasks are sorted by, and the task id


def find(collections: Collections, where: Filter, limit: int, order: Order, after: str | None) -> Page:
    """See ports.Store.find."""
    start = None if after is None else _read_cursor(after)
    tasks = list(_first(collections, where, order, limit + 1, start, None))
    if len(tasks) <= limit or limit < 1:
        return Page(tasks[:limit])
    return Page(tasks[:limit], _write_cursor(_position(tasks[limit - 1], order)))


def leases(collections: Collections, pipeline: str | None, phase: str | None, limit: int) -> list[LeaseRecord]:
    """See ports.Store.leases."""
    named = {"pipeline": pipeline, "type": phase}
    where = PROCESSING | {"leased_until": A_TIME} | {key: name for key, name in named.items() if name is not None}
    shown = dict.fromkeys(("pipeline", "type", "token", "leased_by", "leased_until"), 1)
    rows = collections.tasks.find(where, shown).sort([("leased_until", 1), ("_id", 1)]).limit(limit)
    return [
        LeaseRecord(
            row["_id"],
            row.get("pipeline", ""),
            row["type"],
            int(row.get("token", 0)),
            row.get("leased_by") or "",
            moment_of(row["leased_until"]),
        )
        for row in rows
    ]


def search(
    collections: Collections,
    where: Filter,
    limit: int,
    order: Literal["newest", "latest"],
    after: str | None,
    within: timedelta,
) -> Search:
    """See ports.Searchable.search: scan in batches, each twice the size of the last, until the time limit."""
    scanned = _scanned(where, order)
    if scanned is None:
        page = find(collections, where, limit, order, after)
        return Search(page.tasks, page.next)
    until = monotonic() + within.total_seconds()
    position = None if after is None else _read_cursor(after)
    found: list[Task] = []
    batch, examined = _FIRST_BATCH, 0
    while True:
        end = _end_of_batch(collections, scanned, order, position, batch)
        found += _first(collections, where, order, limit + 1 - len(found), position, end)
        if len(found) > limit:
            return Search(found[:limit], _write_cursor(_position(found[limit - 1], order)))
        if end is None:
            return Search(found)
        examined += batch
        position = end
        if monotonic() >= until:
            return Search(found, _write_cursor(position), position[0], examined)
        batch = min(batch * 2, _MAX_BATCH)


def _first(
    collections: Collections, where: Filter, order: Order, limit: int, after: Position | None, until: Position | None
) -> Iterator[Task]:
    """Yield the first matching tasks between two positions, checked in the client where needed."""
    key, direction = ORDERS[order]
    terms = [query_of(where)]
    if key == "completed_at":
        terms.append({key: A_TIME})
    further, back = ("$lt", "$gt") if direction < 0 else ("$gt", "$lt")
    if after is not None:
        terms.append(_beyond(key, further, after, inclusive=False))
    if until is not None:
        terms.append(_beyond(key, back, until, inclusive=True))
    matches = client_filter(where)
    with collections.tasks.find({"$and": terms}).sort([(key, direction), ("_id", direction)]) as found:
        if matches is None:
            yield from decoded(list(found.limit(limit)), task_of, ID)
            return
        for document in found:
            (task,) = decoded([document], task_of, ID)
            if matches(task):
                yield task
                limit -= 1
                if not limit:
                    return


def _beyond(key: str, comparison: str, position: Position, *, inclusive: bool) -> Document:
    moment, task_id = position
    # The redundant outer range lets the server seek to the position in the index.
    return {
        "$and": [
            {key: {f"{comparison}e": moment}},
            {"$or": [{key: {comparison: moment}}, {"_id": {f"{comparison}e" if inclusive else comparison: task_id}}]},
        ]
    }


def _scanned(where: Filter, order: Literal["newest", "latest"]) -> tuple[str, Document] | None:
    """Return the index to scan and its condition; None if a selective index finds the few matches."""
    few = (
        where.parent_id,
        where.held_key,
        where.leased_by,
        where.lease_ended_before,
        where.awaiting,
        where.held_until_before,
    )
    # Open tasks are usually few and have indexes, but too many to read all of them for a check in the client.
    open_only = where.parked or (where.statuses and where.statuses <= OPEN)
    if any(value is not None for value in few) or (open_only and client_filter(where) is None):
        return None
    if order == "latest":
        if where.statuses == {FAILED}:
            return "task_failed", {"status": "failed", "completed_at": A_TIME}
        return "task_ended", {"completed_at": A_TIME}
    if where.user_id:
        return "task_of_user", {"user_id": where.user_id}
    return "task_created", {}


def _end_of_batch(
    collections: Collections, scanned: tuple[str, Document], order: Order, after: Position | None, length: int
) -> Position | None:
    """Return the position of the last of the next `length` tasks in an index; None if fewer are left."""
    index, part = scanned
    key, direction = ORDERS[order]
    terms = [part] if after is None else [part, _beyond(key, "$lt", after, inclusive=False)]
    found = collections.tasks.find({"$and": terms}, {key: 1}, hint=index).sort([(key, direction), ("_id", direction)])
    row = next(iter(found.skip(length - 1).limit(1)), None)
    return None if row is None else (moment_of(row[key]), row["_id"])


def _position(task: Task, order: Order) -> Position:
    return getattr(task, ORDERS[order][0]), task.task_id


def _write_cursor(position: Position) -> str:
    return base64.urlsafe_b64encode(_encode([spell(position[0]), position[1]])).decode()


def _read_cursor(text: str) -> Position:
    try:
        moment, task_id = msgspec.json.decode(base64.urlsafe_b64decode(text), type=tuple[str, str])
        return read(moment), task_id
    except Exception:
        raise BadInput(f"{text!r} is not where a page ended; pass a page's `next` as it is", field="after") from None
