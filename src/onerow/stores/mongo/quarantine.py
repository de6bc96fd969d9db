"""Quarantine of unreadable documents, after an operation failed on them, so that other tasks keep running."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from bson.int64 import Int64
from msgspec.structs import replace
from pymongo.errors import DuplicateKeyError, WriteError

from onerow.core.corruption import NUMBERS, as_far_as_readable, problems, quarantine
from onerow.core.status import Status
from onerow.core.task import JSON_FIELDS, TIME_FIELDS, Task
from onerow.ports import Move
from onerow.stores.mongo.connections import Collections
from onerow.stores.mongo.documents import KEY, Document, document_of, values_of
from onerow.stores.mongo.schema import FIRST_TIME, LAST_TIME
from onerow.stores.mongo.updates import update_of
from onerow.stores.mongo.values import to_json

_TIMES, _JSONS = frozenset(TIME_FIELDS), frozenset(JSON_FIELDS)
_MANY = 1_000
_OPTIONAL = {"elapsed_time", "slot", "key_slot", "children"}
_NAMES = ("task_id", "pipeline", "phase", "user_id", "limit_key")


def _not(*types: str) -> Document:
    return {"$exists": True, "$not": {"$type": list(types)}}


_SUSPECT: Document = {
    "$or": [
        {"status": {"$nin": [status.value for status in Status]}},
        *({key: {"$exists": False}} for key in ("type", "run_at", "version")),
        *({KEY[field]: _not("string")} for field in _NAMES),
        *({KEY[field]: _not("date", "null")} for field in TIME_FIELDS),
        *({KEY[field]: {"$lt": FIRST_TIME}} for field in TIME_FIELDS),
        *({KEY[field]: {"$gt": LAST_TIME}} for field in TIME_FIELDS),
        {"logs": _not("array", "javascript")},
        *({KEY[field]: {"$gt": most}} for field, most in NUMBERS.items()),
        *({KEY[field]: _not("number", *["null"] * (field in _OPTIONAL))} for field in NUMBERS),
    ]
}


def set_aside(collections: Collections, ids: Sequence[Any], now: datetime) -> int:
    """Quarantine the unreadable ones of these documents; return how many."""
    done = 0
    for document in collections.tasks.find({"_id": {"$in": list(ids)}}):
        found = as_far_as_readable(values_of(document), _read)
        if not problems(found):
            continue
        after = quarantine(found, now)
        # The stored version, not the decoded one: it may have any type.
        where = {"_id": document["_id"], "version": document.get("version")}
        try:
            if type(document["_id"]) is not str:
                done += _rename(collections, where, after)
                continue
            update = update_of(Move(found, after), {"$literal": now})
            done += collections.tasks.update_one(where, update.change).modified_count
        except WriteError:
            continue  # quarantine the others
    return done


def _rename(collections: Collections, where: Document, task: Task) -> int:
    """Replace a document whose id is not text by one with the id as text; return how many were replaced."""
    name = f"{type(where['_id']).__name__} {task.task_id}"
    try:
        collections.tasks.insert_one(document_of(replace(task, task_id=name, held_key=None, held_until=None)))
    except DuplicateKeyError:
        pass  # an earlier call was interrupted here
    return collections.tasks.delete_one(where).deleted_count


def suspects(collections: Collections) -> list[Any]:
    """Return the ids of documents with an invalid number, name, status, time or history; this scans the collection."""
    return [row["_id"] for row in collections.tasks.find(_SUSPECT, {"_id": 1}).limit(_MANY)]


def _read(field: str, value: Any) -> Any:
    if field in _JSONS:
        return to_json(value)
    if value is None:
        return None
    if field in _TIMES:
        return value.replace(tzinfo=UTC)
    if field == "status":
        return Status(value)
    if field in NUMBERS and isinstance(value, Int64 | float) and value == int(value):
        return int(value)
    return value
