"""Places under the limits in force: which due tasks may start, and in which slots.

What is read here may be old when it is written; then the unique index of slots refuses, and the claim looks again.
Everyone takes the lowest free slots, and no more of them than there is room for: so even tasks that run without a slot
(since before there was a limit) are counted by all in the same way, and two claimers that saw the same state collide.
"""

import random
from collections.abc import Sequence

import msgspec

from onerow.ports import PhaseClaim
from onerow.stores.mongo.connections import Collections
from onerow.stores.mongo.documents import Document
from onerow.stores.mongo.schema import BY_KEY_INDEX, PROCESSING, READY_INDEX

_ORDER = [("priority", 1), ("run_at", 1), ("_id", 1)]
_TOLD = {"_id": 1, "priority": 1, "run_at": 1, "limit_key": 1}
_MOST_KEYS = 200  # looked at in one claim: so many ordered scans the server merges; more it would sort
_ROUNDS = 20


class Place(msgspec.Struct, frozen=True):
    """A task that may start, and the slots that it would hold."""

    task_id: str
    slot: int | None
    key_slot: int | None


class Limit:
    """The slots of one limit: free are the lowest, as many as there is room for."""

    def __init__(self, slots: int | None, used: Sequence[int | None]) -> None:
        self._limited = slots is not None
        room = max(0, (slots or 0) - len(used))
        self._free = [slot for slot in range(slots or 0) if slot not in used][:room]

    @property
    def full(self) -> bool:
        return self._limited and not self._free

    @property
    def room(self) -> int | None:
        return len(self._free) if self._limited else None

    def take(self) -> int | None:
        return self._free.pop(0) if self._limited else None


class Plan:
    """The limits of one phase as they were read, and the places given under them."""

    def __init__(self, rooms: Collections, want: PhaseClaim) -> None:
        where = PROCESSING | {"pipeline": want.pipeline, "type": want.phase}
        running = list(rooms.tasks.find(where, {"limit_key": 1, "slot": 1, "key_slot": 1}))
        self._key_slots = want.key_slots
        self._slots = Limit(want.slots, [row.get("slot") for row in running])
        self._used: dict[str, list[int | None]] = {}
        for row in running:
            self._used.setdefault(row.get("limit_key", ""), []).append(row.get("key_slot"))
        self._keys: dict[str, Limit] = {}
        self.most = want.limit if self._slots.room is None else min(want.limit, self._slots.room)
        self.places: list[Place] = []
        self._placed: set[str] = set()

    @property
    def left(self) -> int:
        return self.most - len(self.places)

    def offer(self, row: Document) -> None:
        """Give the task a place, if its limits have one."""
        key = self._key(row.get("limit_key", ""))
        if self.left > 0 and not key.full and row["_id"] not in self._placed:
            self._placed.add(row["_id"])
            self.places.append(Place(row["_id"], self._slots.take(), key.take()))

    def is_full(self, limit_key: str) -> bool:
        return self._key(limit_key).full

    def _key(self, limit_key: str) -> Limit:
        if limit_key not in self._keys:
            self._keys[limit_key] = Limit(self._key_slots if limit_key else None, self._used.get(limit_key, []))
        return self._keys[limit_key]


def place_all(rooms: Collections, want: PhaseClaim, due: Document, *, in_order: bool) -> list[Place]:
    """The first due tasks that find a place; not `in_order`: all that `due` names are looked at."""
    plan = Plan(rooms, want)
    if plan.left <= 0:
        return []
    if want.key_slots is None:
        page = plan.left
    else:
        page = 4 * plan.left + 50  # some of the first may belong to keys that are full
    found = rooms.tasks.find(due, _TOLD, hint=READY_INDEX if in_order else "_id_").sort(_ORDER)
    rows = list(found.limit(page if in_order else 0))
    for row in rows:
        plan.offer(row)
    if want.key_slots is not None and in_order and len(rows) == page and plan.left:
        _place_by_key(rooms, plan, due)
    return plan.places


def _place_by_key(rooms: Collections, plan: Plan, due: Document) -> None:
    """Keys that are full stand in front: seek the first of each other key, and of those without one."""
    ready = {name: value for name, value in due.items() if name != "run_at"}
    waiting = (row["_id"] for row in rooms.tasks.aggregate(keys_waiting(ready), hint=BY_KEY_INDEX))
    keys = [key for key in waiting if not plan.is_full(key)]
    if len(keys) > _MOST_KEYS:  # some of them, at random, so that each is looked at sooner or later
        keys = random.sample(keys, _MOST_KEYS)
    for _ in range(_ROUNDS):
        keys = [key for key in keys if not plan.is_full(key)]
        groups: list[Document] = [{"limit_key": ""}, *([{"limit_key": {"$in": keys}}] if keys else [])]
        most = plan.most + 50  # more than were placed already, so that every round sees something new
        rows: list[Document] = []
        horizon = None  # beyond it, some group may have rows that we did not read
        for group in groups:
            found = list(rooms.tasks.find(due | group, _TOLD, hint=BY_KEY_INDEX).sort(_ORDER).limit(most))
            rows += found
            if len(found) == most:
                horizon = _rank(found[-1]) if horizon is None else min(horizon, _rank(found[-1]))
        for row in sorted(rows, key=_rank):
            if horizon is not None and _rank(row) > horizon:
                break
            plan.offer(row)
        if horizon is None or not plan.left:
            return


def keys_waiting(ready: Document) -> list[Document]:
    """The aggregate that lists the keys of ready tasks: the server skips from key to key in the index.

    Not the command `distinct`, which takes no hint before MongoDB 7.1.
    """
    return [{"$match": ready | {"limit_key": {"$gt": ""}}}, {"$group": {"_id": "$limit_key"}}]


def _rank(row: Document) -> tuple[object, ...]:
    return (row["priority"], row["run_at"], row["_id"])
