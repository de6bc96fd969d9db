"""Claiming: candidates are chosen by a read, marked by conditional writes, and the marks tell which became ours.

Whoever lost a race for a document skips it. Measured against a find_one_and_update per task: bench/mongo_store.py.
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
from onerow.stores.mongo.clock import Stamp
from onerow.stores.mongo.connections import Collections, is_refusal
from onerow.stores.mongo.documents import ID, MARK, Document, task_of
from onerow.stores.mongo.quarantine import set_aside
from onerow.stores.mongo.schema import READY, READY_INDEX
from onerow.stores.mongo.slots import Place, place_all

ORDER = [("priority", 1), ("run_at", 1), ("_id", 1)]
_TRIES = 8
_DUPLICATE = 11000


def claim(rooms: Collections, claim: Claim, clock: Callable[[], datetime], stamp: Stamp) -> list[Task]:
    """See ports.Store.claim."""
    tasks: list[Task] = []
    for want in claim.wants:
        room = want.limit if claim.limit is None else min(want.limit, claim.limit - len(tasks))
        if room > 0 and claim.ids != []:
            tasks += _claim_phase(rooms, claim, msgspec.structs.replace(want, limit=room), clock, stamp)
    return tasks


def due(rooms: Collections, pipeline: str, phase: str, by: datetime, limit: int) -> Iterable[Document]:
    """See ports.Store.due: what a claim would choose."""
    if limit < 1:
        return []
    where = READY | {"pipeline": pipeline, "type": phase, "run_at": {"$lte": by}}
    return rooms.tasks.find(where, hint=READY_INDEX).sort(ORDER).limit(limit)


def pipelines_waiting(rooms: Collections) -> set[str]:
    """The pipelines in which unparked tasks wait, due or not: the server skips from one to the next in its index."""
    return set(rooms.tasks.distinct("pipeline", READY, hint=READY_INDEX))


def _claim_phase(
    rooms: Collections, claim: Claim, want: PhaseClaim, clock: Callable[[], datetime], stamp: Stamp
) -> list[Task]:
    tasks: list[Task] = []
    for _ in range(_TRIES):
        left = msgspec.structs.replace(want, limit=want.limit - len(tasks))
        got, chosen = _claim_once(rooms, claim, left, due_filter(want, clock(), claim.ids), stamp)
        tasks += got
        if len(got) == chosen or len(tasks) == want.limit:
            break
        # Others were faster with some; there may be more behind those.
    return tasks


def _claim_once(
    rooms: Collections, claim: Claim, want: PhaseClaim, due: Document, stamp: Stamp
) -> tuple[list[Task], int]:
    """(the tasks that became ours, how many were tried)."""
    index = READY_INDEX if claim.ids is None else "_id_"
    if want.slots is not None or want.key_slots is not None:
        places = place_all(rooms, want, due, in_order=claim.ids is None)
        return _take_places(rooms, claim, want, due, places, stamp), len(places)
    if want.limit == 1:
        first = _take_first(rooms, claim, want, due, index, stamp)
        return first, len(first)
    found = rooms.tasks.find(due, {"_id": 1}, hint=index).sort(ORDER).limit(want.limit)
    ids = [row["_id"] for row in found]
    if len(ids) == 1:
        return _take_first(rooms, claim, want, due | {"_id": ids[0]}, "_id_", stamp), 1
    return (_take_all(rooms, claim, want, due, ids, stamp), len(ids)) if ids else ([], 0)


def _take_first(
    rooms: Collections, claim: Claim, want: PhaseClaim, due: Document, index: str, stamp: Stamp
) -> list[Task]:
    """Choose, mark and read one in a single round trip."""
    change = _change(claim, want, stamp, ObjectId())
    row = rooms.tasks.find_one_and_update(due, change, sort=ORDER, return_document=ReturnDocument.AFTER, hint=index)
    return [] if row is None else _read_or_set_aside(rooms, [row])


def due_filter(want: PhaseClaim, now: datetime, ids: Sequence[str] | None) -> Document:
    """What may be claimed: the condition of the choice, and again of the write."""
    due = READY | {"pipeline": want.pipeline, "type": want.phase, "run_at": {"$lte": now}}
    return due if ids is None else due | {"_id": {"$in": list(ids)}}


def _take_all(
    rooms: Collections, claim: Claim, want: PhaseClaim, due: Document, ids: list[str], stamp: Stamp
) -> list[Task]:
    """Mark them all in one statement, several times as fast as one each, and read back those that bear our mark."""
    mark = ObjectId()
    try:
        rooms.tasks.update_many(due | {"_id": {"$in": ids}}, _change(claim, want, stamp, mark), hint="_id_")
    except WriteError as error:
        # It ended at a document that can't be claimed. Those before it are ours, those behind it are for the next try.
        if not is_refusal(error) or not set_aside(rooms, ids, due["run_at"]["$lte"]):
            raise
    return _marked(rooms, ids, mark)


def _take_places(
    rooms: Collections, claim: Claim, want: PhaseClaim, due: Document, places: Sequence[Place], stamp: Stamp
) -> list[Task]:
    """One write each, since each has a slot of its own; a slot that someone else took meanwhile is refused."""
    if not places:
        return []
    mark = ObjectId()
    writes = [
        UpdateOne(
            due | {"_id": place.task_id},
            _change(claim, want, stamp, mark, slot=place.slot, key_slot=place.key_slot),
        )
        for place in places
    ]
    try:
        rooms.tasks.bulk_write(writes, ordered=False)
    except BulkWriteError as error:
        details: Document = dict(error.details)
        others = [each for each in details["writeErrors"] if each["code"] != _DUPLICATE]
        ids = [places[each["index"]].task_id for each in others]
        if details.get("writeConcernErrors") or (ids and not set_aside(rooms, ids, due["run_at"]["$lte"])):
            raise
    return _marked(rooms, [place.task_id for place in places], mark)


def _marked(rooms: Collections, ids: list[str], mark: ObjectId) -> list[Task]:
    rows = list(rooms.tasks.find({"_id": {"$in": ids}, MARK: mark, "status": "processing"}))
    tasks = _read_or_set_aside(rooms, rows)
    return sorted(tasks, key=lambda task: (task.priority, task.run_at, task.task_id))


def _read_or_set_aside(rooms: Collections, rows: list[Document]) -> list[Task]:
    """The tasks in documents that became ours; those that can't be read are set aside."""
    tasks, unreadable = set_apart(rows, task_of, ID)
    if unreadable:
        set_aside(rooms, unreadable, rows[0]["started_at"].replace(tzinfo=UTC))
    return tasks


def _change(claim: Claim, want: PhaseClaim, stamp: Stamp, mark: ObjectId, **more: int | None) -> list[Document]:
    """See rules.claimed; a pipeline, so that the lease begins by the server's clock when the server writes it.

    Every claim leaves a mark of its own, also where nobody reads it back: an old one would still be another's.
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
                MARK: mark,
                **{key: {"$literal": value} for key, value in more.items()},
                **{key: {"$add": [f"${key}", 1]} for key in ("token", "attempt", "version")},
            }
        }
    ]
