"""What a database needs: the collection with its validator, and the indexes, several of which are the promises.

The store records `schema` (how far it was migrated) and `min_code` (the oldest schema number that code may know and
still work beside it). Code refuses only below min_code.
"""

from datetime import UTC, datetime
from typing import Any

import msgspec
from pymongo import ASCENDING, IndexModel, timeout
from pymongo.errors import CollectionInvalid, OperationFailure

from onerow.core.errors import CodeTooOld, SchemaMissing, StoreError
from onerow.core.status import Status
from onerow.stores.mongo.connections import Collections
from onerow.stores.mongo.documents import Document

SCHEMA = 1
"""The newest schema this code knows."""
MIN_CODE = 1
"""What this schema demands of code that works beside it."""

_BUILD_FOR = 3_600.0  # seconds; a collection that is large already takes its time
_EXISTS = 48
_NO_SUCH_COMMAND = 59
_OTHER_INDEX = frozenset({85, 86})

READY = {"status": "waiting", "awaiting": None}
"""What the claim's indexes cover: waiting for nothing but a worker."""
READY_INDEX = "task_ready"
BY_KEY_INDEX = "task_ready_by_key"
CHILD_INDEX = "task_child"
PROCESSING = {"status": "processing"}
_A_TEXT = {"$gte": ""}  # partial indexes can't say 'not null'; this says it of texts
A_TIME: Document = {"$gte": datetime(1970, 1, 1, tzinfo=UTC)}  # and this of times; who asks must say it too


class Index(msgspec.Struct, frozen=True):
    """One index: its keys, which documents it covers, and whether it allows equals."""

    name: str
    keys: tuple[str, ...]
    where: Document = {}
    unique: bool = False

    def model(self) -> IndexModel:
        more: dict[str, Any] = {"partialFilterExpression": self.where} if self.where else {}
        if self.unique:
            more["unique"] = True
        return IndexModel([(key, ASCENDING) for key in self.keys], name=self.name, **more)


INDEXES = (
    # The claim's own order. The server skips from priority to priority, over whatever isn't due yet. The status is the
    # same in all of it: it stands in front so that questions without a pipeline can use the index too.
    Index(READY_INDEX, ("status", "pipeline", "type", "priority", "run_at", "_id"), READY),
    # The same per key, for phases that limit each key; what has none is there too, so that it is found behind the others.
    Index(BY_KEY_INDEX, ("status", "pipeline", "type", "limit_key", "priority", "run_at", "_id"), READY),
    Index("task_parked", ("status", "pipeline", "type", "run_at"), {"status": "waiting", "awaiting": _A_TEXT}),
    # Whatever is processing: a few thousand entries at the most, so that rescues and looks at cancels may walk them.
    Index("task_leased", ("status", "pipeline", "type", "leased_until"), PROCESSING),
    # Limits: a slot has one holder, under any race. Without a range on the slot, those without one would collide.
    Index("task_slot", ("pipeline", "type", "slot"), PROCESSING | {"slot": {"$gte": 0}}, unique=True),
    Index(
        "task_key_slot",
        ("pipeline", "type", "limit_key", "key_slot"),
        PROCESSING | {"key_slot": {"$gte": 0}},
        unique=True,
    ),
    Index("task_unique", ("pipeline", "user_id", "held_key"), {"held_key": _A_TEXT}, unique=True),
    Index("task_remembered", ("held_until",), {"held_until": A_TIME}),
    Index(CHILD_INDEX, ("parent_id",), {"parent_id": _A_TEXT}),
    Index("task_created", ("created_at", "_id")),
    # A tenant's own list; who has no tenants pays nothing for it.
    Index("task_of_user", ("user_id", "created_at", "_id"), {"user_id": {"$gt": ""}}),
    Index("task_ended", ("completed_at", "_id"), {"completed_at": A_TIME}),
    Index("task_failed", ("completed_at", "_id"), {"status": "failed"}),
)

VALIDATOR: Document = {
    "$jsonSchema": {
        "bsonType": "object",
        "required": ["_id", "type", "status", "run_at", "version"],
        "properties": {
            "_id": {"bsonType": "string"},
            "type": {"bsonType": "string"},
            "status": {"enum": [status.value for status in Status]},
            "run_at": {"bsonType": "date"},
            "priority": {"bsonType": "number", "minimum": -100, "maximum": 100},
            "version": {"bsonType": "number", "minimum": 1, "maximum": 2**61},
            "token": {"bsonType": "number", "maximum": 2**61},
            "logs": {"bsonType": ["array", "javascript"]},
        },
    }
}


def migrate(rooms: Collections) -> None:
    """Bring the database up to SCHEMA; many processes may do so at once."""
    version, min_code = versions(rooms)
    _check_code(version, min_code)
    if version < SCHEMA:
        _create(rooms)
        for key, value in (("schema", SCHEMA), ("min_code", MIN_CODE)):
            rooms.meta.update_one({"_id": key}, {"$max": {"value": value}}, upsert=True)
    missing = [index.name for index in missing_indexes(rooms)]
    if missing:
        _make_indexes(rooms)


def check(rooms: Collections) -> None:
    """Refuse to work where indexes may be missing, or where newer code has left something for newer code only."""
    version, min_code = versions(rooms)
    _check_code(version, min_code)
    if version < SCHEMA:
        raise SchemaMissing(
            f"{rooms.tasks.full_name} has schema {version}, this code needs {SCHEMA}; run: onerow migrate"
        )


def versions(rooms: Collections) -> tuple[int, int]:
    """(schema, min_code) as recorded; (0, 0) in a new database."""
    found = {each["_id"]: each["value"] for each in rooms.meta.find({"_id": {"$in": ["schema", "min_code"]}})}
    return found.get("schema", 0), found.get("min_code", 0)


def missing_indexes(rooms: Collections) -> list[Index]:
    """Indexes that aren't there, or are there with another meaning."""
    there = rooms.tasks.index_information()
    return [index for index in INDEXES if not _is(index, there.get(index.name))]


def validator_in_force(rooms: Collections) -> Document:
    """What the server checks of every document; empty where there is nothing."""
    return dict(rooms.tasks.options().get("validator", {}))


def _is(index: Index, found: Any) -> bool:
    if found is None:
        return False
    return (
        [key for key, _ in found["key"]] == list(index.keys)
        and bool(found.get("unique", False)) == index.unique
        and _naive(found.get("partialFilterExpression", {})) == _naive(index.where)
    )


def _create(rooms: Collections) -> None:
    try:
        rooms.database.create_collection(rooms.tasks.name, validator=VALIDATOR, check_exists=False)
    except (CollectionInvalid, OperationFailure) as error:
        if not isinstance(error, CollectionInvalid) and error.code != _EXISTS:
            raise
        _put_validator(rooms)
    _make_indexes(rooms)


def _put_validator(rooms: Collections) -> None:
    """Someone else's collection, or another process's of a moment ago."""
    if validator_in_force(rooms) == VALIDATOR:
        return
    try:
        rooms.database.command("collMod", rooms.tasks.name, validator=VALIDATOR)
    except OperationFailure as error:
        if error.code != _NO_SUCH_COMMAND:  # `inspect` tells of it
            raise


def _make_indexes(rooms: Collections) -> None:
    try:
        with timeout(_BUILD_FOR):
            rooms.tasks.create_indexes([index.model() for index in INDEXES])
    except OperationFailure as error:
        if error.code in _OTHER_INDEX:
            wrong = ", ".join(index.name for index in missing_indexes(rooms))
            raise StoreError(
                f"{rooms.tasks.full_name} has an index of another meaning where onerow needs its own ({wrong}); "
                f"drop it, then run: onerow migrate"
            ) from error
        raise


def _check_code(version: int, min_code: int) -> None:
    if min_code > SCHEMA:
        raise CodeTooOld(
            f"the store has schema {version} and needs code that knows schema {min_code}; "
            f"this onerow knows {SCHEMA}: upgrade it (pip install -U onerow)"
        )


def _naive(where: Any) -> Any:
    """A filter with its dates as the driver gives them back."""
    if isinstance(where, dict):
        return {key: _naive(value) for key, value in where.items()}
    return where.replace(tzinfo=None) if isinstance(where, datetime) else where
