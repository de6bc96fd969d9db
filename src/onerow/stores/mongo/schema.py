"""The schema: the collection with its validator, and the indexes, some of which enforce guarantees."""

from datetime import UTC, datetime
from typing import Any

import msgspec
from pymongo import ASCENDING, IndexModel, timeout
from pymongo.errors import CollectionInvalid, OperationFailure

from onerow.core.errors import StoreError
from onerow.core.status import Status
from onerow.core.task import TIME_FIELDS
from onerow.stores.mongo.connections import Collections
from onerow.stores.mongo.documents import KEY, Document
from onerow.stores.shared.schema_version import check_code, check_version

SCHEMA = 2
"""The newest schema this code knows."""
MIN_CODE = 1
"""The oldest SCHEMA of code that may use a store with this schema."""

_BUILD_FOR = 3_600.0  # seconds; building indexes on a large collection takes long
_EXISTS = 48
_NOT_POSSIBLE = frozenset({13, 59})  # this user may not, or the server has no such command
_OTHER_INDEX = frozenset({85, 86})

READY = {"status": "waiting", "awaiting": None}
"""Tasks that wait only for a worker: the condition of the claim's indexes."""
READY_INDEX = "task_ready"
BY_KEY_INDEX = "task_ready_by_key"
CHILD_INDEX = "task_child"
PROCESSING = {"status": "processing"}
_A_TEXT = {"$gte": ""}  # 'not null' for text; partial indexes can't express that directly
A_TIME: Document = {"$gte": datetime(1970, 1, 1, tzinfo=UTC)}  # the same for times; queries must repeat it
FIRST_TIME, LAST_TIME = datetime.min, datetime(9999, 12, 31, 23, 59, 59, 999_000)
"""What Python's dates can hold, without a zone, as the driver returns dates; MongoDB's own range is far larger."""


class Index(msgspec.Struct, frozen=True):
    """One index: its keys, the documents it covers, and whether it is unique."""

    name: str
    keys: tuple[str, ...]
    where: Document = {}
    unique: bool = False

    def model(self) -> IndexModel:
        more: dict[str, Any] = {"partialFilterExpression": self.where} if self.where else {}
        if self.unique:
            more["unique"] = True
        return IndexModel([(key, ASCENDING) for key in self.keys], name=self.name, **more)


FAILED_INDEX = "task_failed"

INDEXES = (
    # The order of a claim. The server skips from priority to priority, over tasks that aren't due. All entries have the
    # same status; it is the first key so that queries without a pipeline can use the index too.
    Index(READY_INDEX, ("status", "pipeline", "type", "priority", "run_at", "_id"), READY),
    # The same per limit_key, for phases with a limit per key; it includes tasks without a key, which a claim seeks too.
    Index(BY_KEY_INDEX, ("status", "pipeline", "type", "limit_key", "priority", "run_at", "_id"), READY),
    Index("task_parked", ("status", "pipeline", "type", "run_at"), {"status": "waiting", "awaiting": _A_TEXT}),
    # All processing tasks: at most a few thousand, so rescues and checks for cancels may scan them.
    Index("task_leased", ("status", "pipeline", "type", "leased_until"), PROCESSING),
    # Limits: each slot has at most one holder, under any race. The range excludes tasks without a slot.
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
    # The tasks of one user; tasks without a user are not indexed.
    Index("task_of_user", ("user_id", "created_at", "_id"), {"user_id": {"$gt": ""}}),
    Index("task_ended", ("completed_at", "_id"), {"completed_at": A_TIME}),
    Index(FAILED_INDEX, ("completed_at", "_id"), {"status": "failed"}),
)

VALIDATOR: Document = {
    "$jsonSchema": {
        "bsonType": "object",
        "required": ["_id", "type", "status", "run_at", "version"],
        "properties": {
            **{key: {"bsonType": "string"} for key in ("_id", "type", "pipeline", "user_id", "limit_key")},
            "status": {"enum": [status.value for status in Status]},
            "run_at": {"bsonType": "date"},
            "priority": {"bsonType": "number", "minimum": -100, "maximum": 100},
            "version": {"bsonType": "number", "minimum": 1, "maximum": 2**61},
            "token": {"bsonType": "number", "maximum": 2**61},
            "logs": {"bsonType": ["array", "javascript"]},
        },
    },
    "$nor": [
        *({KEY[field]: bound} for field in TIME_FIELDS for bound in ({"$lt": FIRST_TIME}, {"$gt": LAST_TIME})),
        # A processing task needs a lease.
        PROCESSING | {"leased_by": None},
        PROCESSING | {"leased_until": None},
    ],
}


def migrate(collections: Collections) -> None:
    """Migrate the database to SCHEMA; several processes may call it at once."""
    version, min_code = versions(collections)
    check_code(SCHEMA, version, min_code)
    if version < SCHEMA:
        _create(collections)
        for key, value in (("schema", SCHEMA), ("min_code", MIN_CODE)):
            collections.meta.update_one({"_id": key}, {"$max": {"value": value}}, upsert=True)
    elif version == SCHEMA:
        _put_validator(collections)
    if missing_indexes(collections):
        _make_indexes(collections)


def check(collections: Collections) -> None:
    """Raise SchemaMissing if the database is not migrated, CodeTooOld if it needs newer code."""
    version, min_code = versions(collections)
    check_version(collections.tasks.full_name, SCHEMA, version, min_code)


def drop(collections: Collections) -> None:
    """Delete all collections of the store."""
    for collection in (collections.tasks, collections.notes, collections.log, collections.meta):
        collection.drop()


def versions(collections: Collections) -> tuple[int, int]:
    """Return the recorded (schema, min_code); (0, 0) for a new database."""
    found = {each["_id"]: each["value"] for each in collections.meta.find({"_id": {"$in": ["schema", "min_code"]}})}
    return found.get("schema", 0), found.get("min_code", 0)


def missing_indexes(collections: Collections) -> list[Index]:
    """Return the indexes that are missing or have another definition."""
    there = collections.tasks.index_information()
    return [index for index in INDEXES if not _is(index, there.get(index.name))]


def validator_in_force(collections: Collections) -> Document:
    """Return the validator of the collection; empty if there is none."""
    return dict(collections.tasks.options().get("validator", {}))


def _is(index: Index, found: Any) -> bool:
    if found is None:
        return False
    return (
        [key for key, _ in found["key"]] == list(index.keys)
        and bool(found.get("unique", False)) == index.unique
        and _naive(found.get("partialFilterExpression", {})) == _naive(index.where)
    )


def _create(collections: Collections) -> None:
    try:
        collections.database.create_collection(collections.tasks.name, validator=VALIDATOR, check_exists=False)
    except (CollectionInvalid, OperationFailure) as error:
        if not isinstance(error, CollectionInvalid) and error.code != _EXISTS:
            raise
        _put_validator(collections)
    _make_indexes(collections)


def _put_validator(collections: Collections) -> None:
    """Set the validator on a collection that existed before, or lost it."""
    if validator_in_force(collections) == VALIDATOR:
        return
    try:
        collections.database.command("collMod", collections.tasks.name, validator=VALIDATOR)
    except OperationFailure as error:
        if error.code not in _NOT_POSSIBLE:  # `inspect` reports it
            raise


def _make_indexes(collections: Collections) -> None:
    try:
        with timeout(_BUILD_FOR):
            collections.tasks.create_indexes([index.model() for index in INDEXES])
    except OperationFailure as error:
        if error.code in _OTHER_INDEX:
            wrong = ", ".join(index.name for index in missing_indexes(collections))
            raise StoreError(
                f"{collections.tasks.full_name} has an index of another meaning where onerow needs its own ({wrong})",
                fix="drop it, then run: onerow migrate",
            ) from error
        raise


def _naive(where: Any) -> Any:
    """Return a filter with naive dates, as the driver returns them."""
    if isinstance(where, dict):
        return {key: _naive(value) for key, value in where.items()}
    return where.replace(tzinfo=None) if isinstance(where, datetime) else where
