"""Claiming: read candidates, claim them by conditional writes with a claim id, read back those with that id.

A document that another worker claimed first is skipped. bench/mongo_store.py compares this with one find_one_and_update
per task.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from bson.objectid import ObjectId
from pymongo import ReturnDocument, UpdateOne
from pymongo.errors import BulkWriteError, WriteError

from onerow.core.corruption import set_apart
from onerow.core.task import Task
from onerow.ports import Claim, PhaseClaim
from onerow.stores.mongo.connections import Collections, is_refusal
from onerow.stores.mongo.documents import CLAIM_ID, ID, Document, Stamp, task_of
from onerow.stores.mongo.quarantine import set_aside
from onerow.stores.mongo.schema import READY, READY_INDEX
from onerow.stores.mongo.slots import Assignment, assign_slots

ORDER = [("priority", 1), ("run_at", 1), ("_id", 1)]
_TRIES = 8
_DUPLICATE = 11000
# The command `distinct` takes no hint before MongoDB 7.1; the range lets the server skip from pipeline to pipeline.
PIPELINES_WAITING: list[Document] = [{"$match": READY | {"pipeline": {"$gt": ""}}}, {"$group": {"_id": "$pipeline"}}]


def claim(collections: Collections, claim: Claim, clock: Callable[[], datetime], stamp: Stamp) -> list[Task]:
    """See ports.Store.claim."""
    tasks: list[Task] = []
    for want in claim.phases:
        capacity = want.limit if claim.limit is None else min(want.limit, claim.limit - len(tasks))
        if capacity > 0 and claim.ids != []:
            tasks += _claim_phase(collections, claim, msgspec.structs.replace(want, limit=capacity), clock, stamp)
    return tasks


def due(collections: Collections, pipeline: str, phase: str, by: datetime, limit: int) -> Iterable[Document]:
    """See ports.Store.due."""
    if limit < 1:
        return []
    where = READY | {"pipeline": pipeline, "type": phase, "run_at": {"$lte": by}}
    return collections.tasks.find(where, hint=READY_INDEX).sort(ORDER).limit(limit)


def pipelines_waiting(collections: Collections) -> set[str]:
    """Return the pipelines with waiting, unparked tasks, due or not."""
    return {row["_id"] for row in collections.tasks.aggregate(PIPELINES_WAITING, hint=READY_INDEX)}


def _claim_phase(
    collections: Collections, claim: Claim, want: PhaseClaim, clock: Callable[[], datetime], stamp: Stamp
) -> list[Task]:
    tasks: list[Task] = []
    for _ in range(_TRIES):
        left = msgspec.structs.replace(want, limit=want.limit - len(tasks))
        got, chosen = _claim_once(collections, claim, left, due_filter(want, clock(), claim.ids), stamp)
        tasks += got
        if len(got) == chosen or len(tasks) == want.limit:
            break
        # Other workers claimed some of the candidates; there may be more due tasks.
    return tasks


def _claim_once(
    collections: Collections, claim: Claim, want: PhaseClaim, due: Document, stamp: Stamp
) -> tuple[list[Task], int]:
    """Return (the claimed tasks, how many were tried)."""
    index = READY_INDEX if claim.ids is None else "_id_"
    if want.slots is not None or want.key_slots is not None:
        assigned = assign_slots(collections, want, due, in_order=claim.ids is None)
        return _claim_in_slots(collections, claim, want, due, assigned, stamp), len(assigned)
    if want.limit == 1:
        first = _claim_first(collections, claim, want, due, index, stamp)
        return first, len(first)
    found = collections.tasks.find(due, {"_id": 1}, hint=index).sort(ORDER).limit(want.limit)
    ids = [row["_id"] for row in found]
    if len(ids) == 1:
        return _claim_first(collections, claim, want, due | {"_id": ids[0]}, "_id_", stamp), 1
    return (_claim_many(collections, claim, want, due, ids, stamp), len(ids)) if ids else ([], 0)


def _claim_first(
    collections: Collections, claim: Claim, want: PhaseClaim, due: Document, index: str, stamp: Stamp
) -> list[Task]:
    """Find, claim and read one task in a single round trip."""
    change = _change(claim, want, stamp, ObjectId())
    row = collections.tasks.find_one_and_update(
        due, change, sort=ORDER, return_document=ReturnDocument.AFTER, hint=index
    )
    return [] if row is None else _read_or_set_aside(collections, [row])


def due_filter(want: PhaseClaim, now: datetime, ids: Sequence[str] | None) -> Document:
    """Return the condition for claimable tasks, used by the read and again by the write."""
    due = READY | {"pipeline": want.pipeline, "type": want.phase, "run_at": {"$lte": now}}
    return due if ids is None else due | {"_id": {"$in": list(ids)}}


def _claim_many(
    collections: Collections, claim: Claim, want: PhaseClaim, due: Document, ids: list[str], stamp: Stamp
) -> list[Task]:
    """Claim the tasks in one update, which is several times faster than one each, and read back those claimed."""
    claim_id = ObjectId()
    try:
        collections.tasks.update_many(due | {"_id": {"$in": ids}}, _change(claim, want, stamp, claim_id), hint="_id_")
    except WriteError as error:
        # The update stopped at an unreadable document. Those before it are claimed; the next try claims the others.
        if not is_refusal(error) or not set_aside(collections, ids, due["run_at"]["$lte"]):
            raise
    return _read_claimed(collections, ids, claim_id)


def _claim_in_slots(
    collections: Collections,
    claim: Claim,
    want: PhaseClaim,
    due: Document,
    assigned: Sequence[Assignment],
    stamp: Stamp,
) -> list[Task]:
    """Claim each task by its own write, with its slots; the unique index refuses slots taken since they were read."""
    if not assigned:
        return []
    claim_id = ObjectId()
    writes = [
        UpdateOne(
            due | {"_id": assignment.task_id},
            _change(claim, want, stamp, claim_id, slot=assignment.slot, key_slot=assignment.key_slot),
        )
        for assignment in assigned
    ]
    try:
        collections.tasks.bulk_write(writes, ordered=False)
    except BulkWriteError as error:
        details: Document = dict(error.details)
        others = [each for each in details["writeErrors"] if each["code"] != _DUPLICATE]
        ids = [assigned[each["index"]].task_id for each in others]
        if details.get("writeConcernErrors") or (ids and not set_aside(collections, ids, due["run_at"]["$lte"])):
            raise
    return _read_claimed(collections, [assignment.task_id for assignment in assigned], claim_id)


def _read_claimed(collections: Collections, ids: list[str], claim_id: ObjectId) -> list[Task]:
    rows = list(collections.tasks.find({"_id": {"$in": ids}, CLAIM_ID: claim_id, "status": "processing"}))
    tasks = _read_or_set_aside(collections, rows)
    return sorted(tasks, key=lambda task: (task.priority, task.run_at, task.task_id))


def _read_or_set_aside(collections: Collections, rows: list[Document]) -> list[Task]:
    """Return the tasks of claimed documents; unreadable documents are quarantined."""
    tasks, unreadable = set_apart(rows, task_of, ID)
    if unreadable:
        set_aside(collections, unreadable, rows[0]["started_at"].replace(tzinfo=UTC))
    return tasks


def _change(claim: Claim, want: PhaseClaim, stamp: Stamp, claim_id: ObjectId, **more: int | None) -> list[Document]:
    """Return the update of a claim (see rules.claimed); an aggregation pipeline, so that it can use the server's clock.

    Every claim writes a claim id, even if it does not read it back, to replace the id of an earlier claim.
    """
    return [
        {
            "$set": {
                "status": "processing",
                "leased_by": {"$literal": claim.worker},
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
