"""Counting: how many tasks stand where."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from time import monotonic

from msgspec.structs import replace

from onerow.core.corruption import UnreadableRows, decoded
from onerow.core.status import ENDS, OPEN, PROCESSING, WAITING, Status
from onerow.ports import Filter, StoreCounts, TaskCount
from onerow.stores.mongo.connections import Collections, Session
from onerow.stores.mongo.documents import ID, Document, moment_of, task_of
from onerow.stores.mongo.filters import judge_of, query_of
from onerow.stores.mongo.quarantine import suspects
from onerow.stores.mongo.schema import CHILD_INDEX

_Group = tuple[str, str, Status, bool]
_MANY = 20_000
_BY_PLACE: Document = {"pipeline": "$pipeline", "type": "$type"}


class Remembered:
    """The census: open tasks are counted each time; where they are many, and ended ones, only now and then."""

    def __init__(self) -> None:
        self._open: list[TaskCount] = []
        self._open_good_until = 0.0
        self._ended: list[TaskCount] = []
        self._counted_at: datetime | None = None
        self._good_until = 0.0

    def __call__(self, rooms: Collections, now: datetime) -> StoreCounts:
        """See ports.Glance.census."""
        began = monotonic()
        if self._counted_at is None or began > self._good_until:
            self._ended = count(rooms, Filter(statuses=ENDS))
            self._counted_at = now
            # A twentieth of someone's time at the most; but no one should wonder at a small queue.
            many = rooms.tasks.estimated_document_count() > _MANY
            self._good_until = monotonic() + (20 * (monotonic() - began) if many else -1)
        return StoreCounts(self._count_open(rooms) + self._ended, self._counted_at)

    def _count_open(self, rooms: Collections) -> list[TaskCount]:
        """Open tasks; where they are many, as of a few seconds ago: 200,000 take the server almost a second."""
        began = monotonic()
        if began > self._open_good_until:
            self._open = count(rooms, Filter(statuses=OPEN))
            if sum(tally.count for tally in self._open) > _MANY:
                self._open_good_until = monotonic() + min(5.0, 5 * (monotonic() - began))
        return self._open


def count(rooms: Collections, where: Filter) -> list[TaskCount]:
    """See ports.Store.count."""
    try:
        tallies = list(_counted_here(rooms, where) if judge_of(where) else _counted_there(rooms, where))
    except (ValueError, TypeError, AttributeError):
        raise UnreadableRows(suspects(rooms)) from None
    return sorted(tallies, key=lambda tally: (tally.pipeline, tally.phase, tally.status, tally.parked))


def _counted_there(rooms: Collections, where: Filter) -> Iterator[TaskCount]:
    if where.parent_id is not None:
        yield from _children_counted(rooms, where)
        return
    with rooms.snapshot() as session:
        yield from _counted_by_status(rooms, where, session)


def _children_counted(rooms: Collections, where: Filter) -> Iterator[TaskCount]:
    """Count children in one query, through the index on parent_id.

    An entry of that index never moves, so the query meets every child once, whatever its status does in the course of it.
    A query per status, or a scan of an index that contains the status, can meet a child that moves twice, or not at all.
    """
    parked = {"$gt": ["$awaiting", None]}
    group = {
        "_id": _BY_PLACE | {"status": "$status", "parked": parked},
        "n": {"$sum": 1},
        "oldest": {"$min": "$run_at"},
    }
    for row in rooms.tasks.aggregate([{"$match": query_of(where)}, {"$group": group}], hint=CHILD_INDEX):
        key = row["_id"]
        status = Status(key["status"])
        oldest = moment_of(row["oldest"]) if status is WAITING else None
        yield TaskCount(key.get("pipeline", ""), key["type"], status, bool(key["parked"]), int(row["n"]), oldest)


def _counted_by_status(rooms: Collections, where: Filter, session: Session) -> Iterator[TaskCount]:
    """Count each kind of open task in a query of its own, so that its own index can answer.

    On a replica set all queries read one snapshot. A standalone server has none: there a task that moves between two of
    the queries may be counted twice, or not at all.
    """
    asked = where.statuses or frozenset(Status)
    if WAITING in asked:
        for parked in (False, True) if where.parked is None else (where.parked,):
            for row in _groups(rooms, replace(where, statuses=frozenset({WAITING}), parked=parked), session):
                key = row["_id"]
                yield TaskCount(
                    key.get("pipeline", ""), key["type"], WAITING, parked, int(row["n"]), moment_of(row["oldest"])
                )
    for statuses in (asked & {PROCESSING}, asked & ENDS):
        if statuses and not where.parked:
            for row in _groups(rooms, replace(where, statuses=statuses), session, {"status": "$status"}):
                key = row["_id"]
                yield TaskCount(key.get("pipeline", ""), key["type"], Status(key["status"]), False, int(row["n"]))


def _groups(rooms: Collections, where: Filter, session: Session, more: Document | None = None) -> Iterator[Document]:
    group = {"_id": _BY_PLACE | (more or {}), "n": {"$sum": 1}, "oldest": {"$min": "$run_at"}}
    yield from rooms.tasks.aggregate([{"$match": query_of(where)}, {"$group": group}], session=session)


def _counted_here(rooms: Collections, where: Filter) -> Iterator[TaskCount]:
    """Of what only we can judge."""
    judge = judge_of(where)
    counts: Counter[_Group] = Counter()
    oldest: dict[_Group, datetime] = {}
    hint = None if where.parent_id is None else CHILD_INDEX
    for document in rooms.tasks.find(query_of(where), hint=hint):
        (task,) = decoded([document], task_of, ID)
        if judge is None or judge(task):
            group = (task.pipeline, task.phase, task.status, task.parked)
            counts[group] += 1
            if task.status is WAITING:
                oldest[group] = min(task.run_at, oldest.get(group, task.run_at))
    for group, found in counts.items():
        yield TaskCount(*group, found, oldest.get(group))
