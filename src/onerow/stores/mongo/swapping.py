"""Swapping: what rules decided is written, document by document, an answer for each.

Operator updates only: a user's value stands under $set, where the server takes it for what it is; in a pipeline update
`{"topic": "$secret"}` would read another field. Never a replacement, which would erase keys of newer code.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from onerow.core.errors import StoreError
from onerow.core.task import Task, changed_fields
from onerow.ports import Conflict, Move, Stale, SwapAnswer, Swapped
from onerow.stores.mongo.batches import Outcome, Update, write_each
from onerow.stores.mongo.documents import KEY, MARK, Document, stored
from onerow.stores.mongo.door import Door, Rooms
from onerow.stores.mongo.values import to_bson


def swap(door: Door, rooms: Rooms, moves: Sequence[Move], now: datetime) -> list[SwapAnswer]:
    """See ports.Store.swap."""
    outcomes = write_each(door, rooms, rooms.tasks, [_update(move, now) for move in moves])
    return [_answer(rooms, move, outcome) for move, outcome in zip(moves, outcomes, strict=True)]


def _update(move: Move, now: datetime) -> Update:
    before, after = move.before, move.after
    where: Document = {"_id": before.task_id, "version": before.version}
    if move.if_dead:
        where["leased_until"] = {"$lte": now}
    change: Document = {}
    written: Document = {"version": after.version}
    for field in changed_fields(before, after):
        if field == "logs_json" and (added := _added(before.logs_json, after.logs_json)) is not None:
            change["$push"] = {"logs": {"$each": added}}
        else:
            written[KEY[field]] = stored(after, field)
    if after.parent_id is not None and after.ended:
        # An update's event shows only what it changed: this is by what a change stream knows that a child ended.
        written[MARK] = None
    change["$set"] = written
    return Update(where, change)


def _added(before: str, after: str) -> list[Any] | None:
    """The entries that history gained, if it only grew: old ones are not sent again."""
    if before == "[]" or not after.startswith(before[:-1]):
        return None
    added = to_bson(f"[{after[len(before) :]}")
    return added if isinstance(added, list) else None


def _answer(rooms: Rooms, move: Move, outcome: Outcome) -> SwapAnswer:
    if outcome is Outcome.WRITTEN:
        return Swapped(move.after)
    if outcome is Outcome.MISSED:
        return Stale(move.before.task_id)
    return Conflict(move.before.task_id, _holder(rooms, move.after))


def _holder(rooms: Rooms, task: Task) -> str:
    found = rooms.tasks.find_one(holding(task), {"_id": 1})
    if found is None:
        raise StoreError(f"task {task.task_id} breaks a rule of the collection; run: onerow doctor")
    return str(found["_id"])


def holding(task: Task) -> Document:
    """Who holds this task's unique key."""
    return {"pipeline": task.pipeline, "user_id": task.user_id, "held_key": task.held_key}
