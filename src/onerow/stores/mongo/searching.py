"""Keyset pagination, and searches with a time limit."""

from collections.abc import Iterator
from datetime import timedelta
from functools import partial

from onerow.core.corruption import decoded
from onerow.core.filters import SORTING, Filter, Order, Position, is_selective
from onerow.core.status import FAILED, OPEN
from onerow.core.task import Task
from onerow.ports import LeaseRecord, Page, Search
from onerow.stores.mongo.connections import Collections
from onerow.stores.mongo.documents import ID, Document, moment_of, task_of
from onerow.stores.mongo.filters import client_filter, query_of
from onerow.stores.mongo.schema import A_TIME, PROCESSING
from onerow.stores.shared import paging
from onerow.stores.shared.paging import find_page
from onerow.stores.shared.task_rows import lease_reader

_read_lease = lease_reader(time=moment_of)


def find(collections: Collections, where: Filter, limit: int, order: Order, after: str | None) -> Page:
    """See ports.Store.find."""
    return find_page(partial(_first, collections, where, order), limit, order, after)


def leases(collections: Collections, pipeline: str | None, phase: str | None, limit: int) -> list[LeaseRecord]:
    """See ports.Store.leases."""
    named = {"pipeline": pipeline, "type": phase}
    where = PROCESSING | {key: name for key, name in named.items() if name is not None}
    shown = dict.fromkeys(("pipeline", "type", "token", "leased_by", "leased_until"), 1)
    rows = collections.tasks.find(where, shown).sort([("leased_until", 1), ("_id", 1)]).limit(limit)
    return decoded(list(rows), _lease_of, ID)


def _lease_of(row: Document) -> LeaseRecord:
    names = (row["_id"], row.get("pipeline", ""), row["type"])
    if {*map(type, names)} != {str}:
        raise TypeError("a name is not text")
    return _read_lease((*names, row.get("token", 0), row.get("leased_by"), row.get("leased_until")))


def search(
    collections: Collections,
    where: Filter,
    limit: int,
    order: Order,
    after: str | None,
    within: timedelta,
) -> Search:
    """See ports.Searchable.search."""
    scanned = _scanned(where, order)
    end_of_batch = None if scanned is None else partial(_end_of_batch, collections, scanned, order)
    return paging.search(partial(_first, collections, where, order), end_of_batch, limit, order, after, within)


def _first(
    collections: Collections, where: Filter, order: Order, limit: int, after: Position | None, until: Position | None
) -> Iterator[Task]:
    """Yield the first matching tasks between two positions, checked in the client where needed."""
    key, descending = SORTING[order]
    direction = -1 if descending else 1
    terms = [query_of(where)]
    if key == "completed_at":
        terms.append({key: A_TIME})
    further, back = ("$lt", "$gt") if descending else ("$gt", "$lt")
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


def _scanned(where: Filter, order: Order) -> tuple[str, Document] | None:
    """Return the index to scan and its condition; None if a selective index finds the few matches."""
    # Open tasks are usually few and have indexes, but too many to read all of them for a check in the client.
    open_only = where.parked or (where.statuses and where.statuses <= OPEN)
    if order == "due" or is_selective(where) or (open_only and client_filter(where) is None):
        return None
    if SORTING[order].column == "completed_at":
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
    key, descending = SORTING[order]
    direction = -1 if descending else 1
    terms = [part] if after is None else [part, _beyond(key, "$lt" if descending else "$gt", after, inclusive=False)]
    found = collections.tasks.find({"$and": terms}, {key: 1}, hint=index).sort([(key, direction), ("_id", direction)])
    row = next(iter(found.skip(length - 1).limit(1)), None)
    return None if row is None else (moment_of(row[key]), row["_id"])
