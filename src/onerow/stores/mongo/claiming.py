"""Claiming: read candidates, claim them by conditional writes with a claim id, read back those with that id.

A document that another worker claimed first is skipped. bench/mongo_store.py compares this with one find_one_and_update
per task.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from bson.objectid import ObjectId
from pymongo import ReturnDocument, UpdateOne
from pymongo.errors import BulkWriteError, WriteError

from onerow.core.corruption import set_apart
from onerow.core.task import Task
from onerow.ports import Claim, PhaseClaim
from onerow.stores.mongo.connections import DUPLICATE, Collections, is_refusal
from onerow.stores.mongo.documents import CLAIM_ID, ID, Document, Stamp, task_of
from onerow.stores.mongo.schema import READY, READY_INDEX
from onerow.stores.mongo.slots import Assignment, assign_slots

ORDER = [("priority", 1), ("run_at", 1), ("_id", 1)]
_TRIES = 8
# The command `distinct` takes no hint before MongoDB 7.1; the range lets the server skip from pipeline to pipeline.
PIPELINES_WAITING: list[Document] = [{"$match": READY | {"pipeline": {"$gt": ""}}}, {"$group": {"_id": "$pipeline"}}]


class Claiming:
    """One claim; see ports.Store.claim. `set_aside` quarantines the unreadable ones of some documents."""

    def __init__(
        self,
        collections: Collections,
        claim: Claim,
        clock: Callable[[], datetime],
        stamp: Stamp,
        set_aside: Callable[[Sequence[Any]], int],
    ) -> None:
        self._collections = collections
        self._tasks = collections.tasks
        self._claim = claim
        self._clock = clock
        self._stamp = stamp
        self._set_aside = set_aside

    def run(self) -> list[Task]:
        """Claim and return the tasks."""
        claim, tasks = self._claim, list[Task]()
        for want in claim.phases:
            capacity = want.limit if claim.limit is None else min(want.limit, claim.limit - len(tasks))
            if capacity > 0 and claim.ids != []:
                tasks += self._claim_phase(msgspec.structs.replace(want, limit=capacity))
        return tasks

    def _claim_phase(self, want: PhaseClaim) -> list[Task]:
        tasks: list[Task] = []
        for _ in range(_TRIES):
            left = msgspec.structs.replace(want, limit=want.limit - len(tasks))
            got, chosen = self._claim_once(left, due_filter(want, self._clock(), self._claim.ids))
            tasks += got
            if len(got) == chosen or len(tasks) == want.limit:
                break
            # Other workers claimed some of the candidates; there may be more due tasks.
        return tasks

    def _claim_once(self, want: PhaseClaim, due: Document) -> tuple[list[Task], int]:
        """Return (the claimed tasks, how many were tried)."""
        in_order = self._claim.ids is None
        index = READY_INDEX if in_order else "_id_"
        if want.slots is not None or want.key_slots is not None:
            assigned = assign_slots(self._collections, want, due, in_order=in_order)
            return self._claim_in_slots(want, due, assigned), len(assigned)
        if want.limit == 1:
            first = self._claim_first(want, due, index)
            return first, len(first)
        ids = [row["_id"] for row in self._tasks.find(due, {"_id": 1}, hint=index).sort(ORDER).limit(want.limit)]
        if len(ids) == 1:
            return self._claim_first(want, due | {"_id": ids[0]}, "_id_"), 1
        return (self._claim_many(want, due, ids), len(ids)) if ids else ([], 0)

    def _claim_first(self, want: PhaseClaim, due: Document, index: str) -> list[Task]:
        """Find, claim and read one task in a single round trip."""
        row = self._tasks.find_one_and_update(
            due, self._change(want, ObjectId()), sort=ORDER, return_document=ReturnDocument.AFTER, hint=index
        )
        return [] if row is None else self._read([row])

    def _claim_many(self, want: PhaseClaim, due: Document, ids: list[str]) -> list[Task]:
        """Claim the tasks in one update, which is several times faster than one each, and read back those claimed."""
        claim_id = ObjectId()
        try:
            self._tasks.update_many(due | {"_id": {"$in": ids}}, self._change(want, claim_id), hint="_id_")
        except WriteError as error:
            # The update stopped at an unreadable document. Those before it are claimed; the next try claims the others.
            if not is_refusal(error) or not self._set_aside(ids):
                raise
        return self._read_claimed(ids, claim_id)

    def _claim_in_slots(self, want: PhaseClaim, due: Document, assigned: Sequence[Assignment]) -> list[Task]:
        """Claim each task by its own write, with its slots; the unique index refuses slots taken since they were read."""
        if not assigned:
            return []
        claim_id = ObjectId()
        writes = [
            UpdateOne(due | {"_id": each.task_id}, self._change(want, claim_id, slot=each.slot, key_slot=each.key_slot))
            for each in assigned
        ]
        try:
            self._tasks.bulk_write(writes, ordered=False)
        except BulkWriteError as error:
            details: Document = dict(error.details)
            others = [each for each in details["writeErrors"] if each["code"] != DUPLICATE]
            ids = [assigned[each["index"]].task_id for each in others]
            if details.get("writeConcernErrors") or (ids and not self._set_aside(ids)):
                raise
        return self._read_claimed([each.task_id for each in assigned], claim_id)

    def _read_claimed(self, ids: list[str], claim_id: ObjectId) -> list[Task]:
        rows = self._tasks.find({"_id": {"$in": ids}, CLAIM_ID: claim_id, "status": "processing"})
        return sorted(self._read(list(rows)), key=lambda task: (task.priority, task.run_at, task.task_id))

    def _read(self, rows: list[Document]) -> list[Task]:
        """Return the tasks of claimed documents; unreadable documents are quarantined."""
        tasks, unreadable = set_apart(rows, task_of, ID)
        if unreadable:
            self._set_aside(unreadable)
        return tasks

    def _change(self, want: PhaseClaim, claim_id: ObjectId, **more: int | None) -> list[Document]:
        """Return the update of a claim (see rules.claimed); an aggregation pipeline, so that it can use the server's clock.

        Every claim writes a claim id, even if it does not read it back, to replace the id of an earlier claim.
        """
        stamp = self._stamp
        return [
            {
                "$set": {
                    "status": "processing",
                    "leased_by": {"$literal": self._claim.worker},
                    "leased_until": {"$add": [stamp, want.lease_for // timedelta(milliseconds=1)]},
                    "started_at": stamp,
                    "completed_at": {"$literal": None},
                    "updated_at": stamp,
                    CLAIM_ID: claim_id,
                    **{key: {"$literal": value} for key, value in more.items()},
                    **{key: {"$add": [f"${key}", 1]} for key in ("token", "attempt", "version")},
                }
            }
        ]


def due(collections: Collections, pipeline: str, phase: str, by: datetime, limit: int) -> Iterable[Document]:
    """See ports.Store.due."""
    if limit < 1:
        return []
    where = READY | {"pipeline": pipeline, "type": phase, "run_at": {"$lte": by}}
    return collections.tasks.find(where, hint=READY_INDEX).sort(ORDER).limit(limit)


def claimable(collections: Collections, want: PhaseClaim, by: datetime) -> int:
    """See ports.Store.claimable."""
    if want.limit < 1:
        return 0
    due = due_filter(want, by, None)
    if want.slots is not None or want.key_slots is not None:
        return len(assign_slots(collections, want, due, in_order=True))
    return collections.tasks.count_documents(due, limit=want.limit, hint=READY_INDEX)


def pipelines_waiting(collections: Collections) -> set[str]:
    """Return the pipelines with waiting, unparked tasks, due or not."""
    return {row["_id"] for row in collections.tasks.aggregate(PIPELINES_WAITING, hint=READY_INDEX)}


def due_filter(want: PhaseClaim, now: datetime, ids: Sequence[str] | None) -> Document:
    """Return the condition for claimable tasks, used by the read and again by the write."""
    due = READY | {"pipeline": want.pipeline, "type": want.phase, "run_at": {"$lte": now}}
    return due if ids is None else due | {"_id": {"$in": list(ids)}}
