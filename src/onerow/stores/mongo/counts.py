"""Task counts by pipeline, phase and status."""

from collections.abc import Iterator
from datetime import datetime
from time import monotonic
from typing import Any

from msgspec.structs import replace

from onerow.core.corruption import UnreadableRows, decoded
from onerow.core.filters import Filter
from onerow.core.status import ENDS, FAILED, OPEN, PROCESSING, WAITING, Status
from onerow.ports import StoreCounts, TaskCount, count_tasks
from onerow.stores.mongo.connections import Collections, Session
from onerow.stores.mongo.documents import ID, Document, moment_of, task_of
from onerow.stores.mongo.filters import client_filter, query_of
from onerow.stores.mongo.quarantine import suspects
from onerow.stores.mongo.schema import CHILD_INDEX, FAILED_INDEX

_MANY = 20_000
_BY_PHASE: Document = {"pipeline": "$pipeline", "type": "$type"}


class CachedCounts:
    """Counts of all tasks. Open tasks are counted on each call; large counts, and those of ended tasks, are cached."""

    def __init__(self) -> None:
        self._open: list[TaskCount] = []
        self._open_good_until = 0.0
        self._ended: list[TaskCount] = []
        self._counted_at: datetime | None = None
        self._good_until = 0.0

    def __call__(self, collections: Collections, now: datetime) -> StoreCounts:
        """See ports.Searchable.store_counts."""
        began = monotonic()
        if self._counted_at is None or began > self._good_until:
            self._ended = count(collections, Filter(statuses=ENDS))
            self._counted_at = now
            # Counting takes at most 1/20 of the time; a small queue is always counted, so its numbers are current.
            many = collections.tasks.estimated_document_count() > _MANY
            self._good_until = monotonic() + (20 * (monotonic() - began) if many else -1)
        return StoreCounts(self._count_open(collections) + self._ended, self._counted_at)

    def _count_open(self, collections: Collections) -> list[TaskCount]:
        """Count open tasks; a large count is cached for a few seconds, since 200,000 tasks take almost a second."""
        began = monotonic()
        if began > self._open_good_until:
            self._open = count(collections, Filter(statuses=OPEN))
            if sum(each.count for each in self._open) > _MANY:
                self._open_good_until = monotonic() + min(5.0, 5 * (monotonic() - began))
        return self._open


def count(collections: Collections, where: Filter) -> list[TaskCount]:
    """See ports.Store.count."""
    try:
        counts = _count_in_client(collections, where) if client_filter(where) else _count_in_server(collections, where)
        return sorted(counts, key=lambda each: (each.pipeline, each.phase, each.status, each.parked))
    except (ValueError, TypeError, AttributeError, KeyError):
        raise UnreadableRows(suspects(collections)) from None


def _count_in_server(collections: Collections, where: Filter) -> Iterator[TaskCount]:
    if where.parent_id is not None:
        yield from _count_children(collections, where)
        return
    with collections.snapshot() as session:
        yield from _count_by_status(collections, where, session)


def _count_children(collections: Collections, where: Filter) -> Iterator[TaskCount]:
    """Count children in one query, through the index on parent_id.

    Entries of that index never move, so the query reads every child exactly once, even if its status changes during the
    query. A query per status, or an index that contains the status, could count such a child twice or not at all.
    """
    parked = {"$gt": ["$awaiting", None]}
    group = {
        "_id": _BY_PHASE | {"status": "$status", "parked": parked},
        "n": {"$sum": 1},
        "oldest": {"$min": "$run_at"},
    }
    for row in collections.tasks.aggregate([{"$match": query_of(where)}, {"$group": group}], hint=CHILD_INDEX):
        key = row["_id"]
        status = Status(key["status"])
        oldest = moment_of(row["oldest"]) if status is WAITING else None
        yield TaskCount(key.get("pipeline", ""), key["type"], status, bool(key["parked"]), int(row["n"]), oldest)


def _count_by_status(collections: Collections, where: Filter, session: Session) -> Iterator[TaskCount]:
    """Count each status in its own query, so that an index covers it.

    On a replica set all queries read one snapshot. A standalone server has no snapshots, so a task that changes status
    between two queries may be counted twice or not at all.
    """
    asked = where.statuses or frozenset(Status)
    if WAITING in asked:
        for parked in (False, True) if where.parked is None else (where.parked,):
            for row in _groups(collections, replace(where, statuses=frozenset({WAITING}), parked=parked), session):
                key = row["_id"]
                yield TaskCount(
                    key.get("pipeline", ""), key["type"], WAITING, parked, int(row["n"]), moment_of(row["oldest"])
                )
    for statuses in (asked & {PROCESSING}, asked & ENDS):
        if statuses and not where.parked:
            for row in _groups(collections, replace(where, statuses=statuses), session, {"status": "$status"}):
                key = row["_id"]
                yield TaskCount(key.get("pipeline", ""), key["type"], Status(key["status"]), False, int(row["n"]))


def _groups(
    collections: Collections, where: Filter, session: Session, more: Document | None = None
) -> Iterator[Document]:
    group = {"_id": _BY_PHASE | (more or {}), "n": {"$sum": 1}, "oldest": {"$min": "$run_at"}}
    # The server considers an index only if the query has a condition on its first key, and counts need none.
    options: dict[str, Any] = {"hint": FAILED_INDEX} if where.statuses == {FAILED} and where.user_id is None else {}
    stages = [{"$match": query_of(where)}, {"$group": group}]
    yield from collections.tasks.aggregate(stages, session=session, **options)


def _count_in_client(collections: Collections, where: Filter) -> list[TaskCount]:
    """Count by reading the documents, for filters that the server can't evaluate."""
    matches = client_filter(where)
    hint = None if where.parent_id is None else CHILD_INDEX
    documents = collections.tasks.find(query_of(where), hint=hint)
    tasks = (task for document in documents for task in decoded([document], task_of, ID))
    return count_tasks(task for task in tasks if matches is None or matches(task))
