"""Compare-and-swap: write moves, one document each, with an answer for each."""

from collections.abc import Sequence
from datetime import datetime

from onerow.core.errors import RowRefused, StoreError
from onerow.core.task import Task
from onerow.ports import Conflict, Move, Stale, SwapAnswer, Swapped
from onerow.stores.mongo.bulk_write import Outcome, write_each, write_one
from onerow.stores.mongo.connections import Collections, Connections
from onerow.stores.mongo.documents import Document, Stamp
from onerow.stores.mongo.quarantine import set_aside
from onerow.stores.mongo.updates import update_of


def swap(
    connections: Connections, collections: Collections, moves: Sequence[Move], stamp: Stamp, now: datetime
) -> list[SwapAnswer]:
    """See ports.Store.swap."""
    updates = [update_of(move, stamp) for move in moves]
    try:
        outcomes = write_each(connections, collections, collections.tasks, updates)
    except OverflowError:  # one of them has a number that BSON can't encode
        outcomes = [write_one(collections.tasks, update) for update in updates]
    return [_answer(collections, move, outcome, now) for move, outcome in zip(moves, outcomes, strict=True)]


def _answer(collections: Collections, move: Move, outcome: Outcome, now: datetime) -> SwapAnswer:
    if outcome is Outcome.WRITTEN:
        return Swapped(move.after)
    if outcome is Outcome.MISSED:
        return Stale(move.before.task_id)
    if outcome is Outcome.REFUSED:
        if not set_aside(collections, [move.before.task_id], now):
            raise RowRefused(
                f"task {move.before.task_id}: MongoDB refuses what was to be written", fix="run: onerow doctor"
            )
        return Stale(move.before.task_id)
    return Conflict(move.before.task_id, _holder(collections, move.after))


def _holder(collections: Collections, task: Task) -> str:
    found = collections.tasks.find_one(holding(task), {"_id": 1})
    if found is None:
        raise StoreError(f"task {task.task_id} breaks a rule of the collection", fix="run: onerow doctor")
    return str(found["_id"])


def holding(task: Task) -> Document:
    """Return the query for the holder of this task's unique key."""
    return {"pipeline": task.pipeline, "user_id": task.user_id, "held_key": task.held_key}
