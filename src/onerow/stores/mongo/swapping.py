"""Compare-and-swap: write moves, one document each, with an answer for each."""

from collections.abc import Sequence
from datetime import datetime

from pymongo import DeleteOne

from onerow.core.errors import RowRefused, StoreError
from onerow.core.task import Task
from onerow.ports import Conflict, Move, Stale, SwapAnswer, Swapped
from onerow.stores.mongo import task_log
from onerow.stores.mongo.bulk_write import Outcome, write_each, write_one
from onerow.stores.mongo.connections import Collections, Connections
from onerow.stores.mongo.documents import Document, Stamp
from onerow.stores.mongo.quarantine import set_aside
from onerow.stores.mongo.updates import update_of


def swap(
    connections: Connections, collections: Collections, moves: Sequence[Move], stamp: Stamp, now: datetime
) -> list[SwapAnswer]:
    """See ports.Store.swap."""
    if any(move.remove for move in moves):
        removed = iter(_remove(collections, [move for move in moves if move.remove]))
        written = iter(swap(connections, collections, [move for move in moves if not move.remove], stamp, now))
        return [next(removed if move.remove else written) for move in moves]
    if not moves:
        return []
    updates = [update_of(move, stamp) for move in moves]
    try:
        outcomes = write_each(connections, collections, collections.tasks, updates)
    except OverflowError:  # one of them has a number that BSON can't encode
        outcomes = [write_one(collections.tasks, update) for update in updates]
    return [_answer(collections, move, outcome, now) for move, outcome in zip(moves, outcomes, strict=True)]


def _remove(collections: Collections, moves: Sequence[Move]) -> list[SwapAnswer]:
    """Delete the documents of moves, with their output.

    The server only counts what it deleted. If some documents were gone before, it is not known which: all that are gone
    are then answered as stale.
    """
    ids = [move.before.task_id for move in moves]
    asked = [DeleteOne({"_id": move.before.task_id, "version": move.before.version}) for move in moves]
    count = collections.tasks.bulk_write(asked, ordered=False).deleted_count
    left: set[str] = set()
    if count < len(moves):
        left = {row["_id"] for row in collections.tasks.find({"_id": {"$in": ids}}, {"_id": 1})}
    task_log.remove(collections, [task_id for task_id in ids if task_id not in left])
    known = count == len(ids) - len(left)
    return [
        Swapped(move.after) if known and move.before.task_id not in left else Stale(move.before.task_id)
        for move in moves
    ]


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
