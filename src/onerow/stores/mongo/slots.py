"""Assignment of slots: which due tasks the limits admit, and in which slots.

The state read here may be stale when it is written; then the unique index on slots refuses the write, and the claim
tries again. Every claim takes the lowest free slots, and no more than the limit minus the running tasks. So tasks that
run without a slot (claimed before there was a limit) count too, and two claims that read the same state conflict.
"""

import random
from collections.abc import Sequence

import msgspec

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


class Limit:
    """The slots of one limit. At most `slots` tasks run, including those that hold no slot."""

    def __init__(self, slots: int | None, used: Sequence[int | None]) -> None:
        self._limited = slots is not None
        free = max(0, (slots or 0) - len(used))
        self._free = [slot for slot in range(slots or 0) if slot not in used][:free]

    @property
    def full(self) -> bool:
        return self._limited and not self._free

    @property
    def free(self) -> int | None:
        return len(self._free) if self._limited else None

    def take(self) -> int | None:
        return self._free.pop(0) if self._limited else None


class SlotPlan:
    """The limits of one phase as they were read, and the slots assigned so far."""

    def __init__(self, collections: Collections, want: PhaseClaim) -> None:
        where = PROCESSING | {"pipeline": want.pipeline, "type": want.phase}
        running = list(collections.tasks.find(where, {"limit_key": 1, "slot": 1, "key_slot": 1}))
        self._key_slots = want.key_slots
        self._slots = Limit(want.slots, [row.get("slot") for row in running])
        self._used: dict[str, list[int | None]] = {}
        for row in running:
            self._used.setdefault(row.get("limit_key", ""), []).append(row.get("key_slot"))
        self._keys: dict[str, Limit] = {}
        self.limit = want.limit if self._slots.free is None else min(want.limit, self._slots.free)
        self.assigned: list[Assignment] = []
        self._assigned_ids: set[str] = set()

    @property
    def left(self) -> int:
        return self.limit - len(self.assigned)

    def offer(self, row: Document) -> None:
        """Assign slots to the task if its limits admit it."""
        key = self._key(row.get("limit_key", ""))
        if self.left > 0 and not key.full and row["_id"] not in self._assigned_ids:
            self._assigned_ids.add(row["_id"])
            self.assigned.append(Assignment(row["_id"], self._slots.take(), key.take()))

    def is_full(self, limit_key: str) -> bool:
        return self._key(limit_key).full

    def _key(self, limit_key: str) -> Limit:
        if limit_key not in self._keys:
            self._keys[limit_key] = Limit(self._key_slots if limit_key else None, self._used.get(limit_key, []))
        return self._keys[limit_key]


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
