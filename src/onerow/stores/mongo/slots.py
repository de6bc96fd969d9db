"""Assignment of slots: which due tasks the limits admit, and in which slots.

The state read here may be stale when it is written; then the unique index on slots refuses the write, and the claim
tries again. Every claim takes the lowest free slots, so two claims that read the same state conflict.
"""

import random

import msgspec

from onerow.core.slots import PhaseSlots
from onerow.ports import PhaseClaim
from onerow.stores.mongo.connections import Collections
from onerow.stores.mongo.documents import Document
from onerow.stores.mongo.schema import BY_KEY_INDEX, PROCESSING, READY_INDEX

_ORDER = [("priority", 1), ("run_at", 1), ("_id", 1)]
_PROJECTION = {"_id": 1, "priority": 1, "run_at": 1, "limit_key": 1}
_MAX_KEYS = 200  # keys per claim: the server merges this many ordered scans, and would sort with more
_ROUNDS = 20


class Assignment(msgspec.Struct, frozen=True):
    """A task that may start, and its slots."""

    task_id: str
    slot: int | None
    key_slot: int | None


class SlotPlan:
    """The limits of one phase as they were read, and the slots assigned so far."""

    def __init__(self, collections: Collections, want: PhaseClaim) -> None:
        where = PROCESSING | {"pipeline": want.pipeline, "type": want.phase}
        running = list(collections.tasks.find(where, {"limit_key": 1, "slot": 1, "key_slot": 1}))
        self._slots = PhaseSlots(
            want.slots,
            want.key_slots,
            [(row.get("limit_key", ""), row.get("slot"), row.get("key_slot")) for row in running],
        )
        free = self._slots.free
        self.limit = want.limit if free is None else min(want.limit, free)
        self.assigned: list[Assignment] = []
        self._assigned_ids: set[str] = set()

    @property
    def left(self) -> int:
        return self.limit - len(self.assigned)

    def offer(self, row: Document) -> None:
        """Assign slots to the task if its limits admit it."""
        if self.left <= 0 or row["_id"] in self._assigned_ids:
            return
        if (free := self._slots.take(row.get("limit_key", ""))) is not None:
            self._assigned_ids.add(row["_id"])
            self.assigned.append(Assignment(row["_id"], *free))

    def is_full(self, limit_key: str) -> bool:
        return self._slots.is_full(limit_key)


def assign_slots(collections: Collections, want: PhaseClaim, due: Document, *, in_order: bool) -> list[Assignment]:
    """Return the first due tasks that the limits admit; without `in_order`, examine all tasks that `due` selects."""
    plan = SlotPlan(collections, want)
    if plan.left <= 0:
        return []
    if want.key_slots is None:
        page = plan.left
    else:
        page = 4 * plan.left + 50  # some of the first may belong to full keys
    found = collections.tasks.find(due, _PROJECTION, hint=READY_INDEX if in_order else "_id_").sort(_ORDER)
    rows = list(found.limit(page if in_order else 0))
    for row in rows:
        plan.offer(row)
    if want.key_slots is not None and in_order and len(rows) == page and plan.left:
        _assign_by_key(collections, plan, due)
    return plan.assigned


def _assign_by_key(collections: Collections, plan: SlotPlan, due: Document) -> None:
    """Assign slots to the first tasks of keys that are not full, and to tasks without a key."""
    ready = {name: value for name, value in due.items() if name != "run_at"}
    waiting = (row["_id"] for row in collections.tasks.aggregate(keys_waiting(ready), hint=BY_KEY_INDEX))
    keys = [key for key in waiting if not plan.is_full(key)]
    if len(keys) > _MAX_KEYS:  # a random sample, so that every key is examined eventually
        keys = random.sample(keys, _MAX_KEYS)
    for _ in range(_ROUNDS):
        keys = [key for key in keys if not plan.is_full(key)]
        groups: list[Document] = [{"limit_key": ""}, *([{"limit_key": {"$in": keys}}] if keys else [])]
        limit = plan.limit + 50  # more than are assigned already, so that every round reads new tasks
        rows: list[Document] = []
        horizon = None  # after it, some group may have rows that were not read
        for group in groups:
            found = list(collections.tasks.find(due | group, _PROJECTION, hint=BY_KEY_INDEX).sort(_ORDER).limit(limit))
            rows += found
            if len(found) == limit:
                horizon = _rank(found[-1]) if horizon is None else min(horizon, _rank(found[-1]))
        for row in sorted(rows, key=_rank):
            if horizon is not None and _rank(row) > horizon:
                break
            plan.offer(row)
        if horizon is None or not plan.left:
            return


def keys_waiting(ready: Document) -> list[Document]:
    """Return the aggregation that lists the keys of ready tasks; the server skips from key to key in the index.

    The command `distinct` takes no hint before MongoDB 7.1.
    """
    return [{"$match": ready | {"limit_key": {"$gt": ""}}}, {"$group": {"_id": "$limit_key"}}]


def _rank(row: Document) -> tuple[object, ...]:
    return (row["priority"], row["run_at"], row["_id"])
