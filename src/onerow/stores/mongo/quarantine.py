"""Quarantine of unreadable documents, after an operation failed on them, so that other tasks keep running."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from bson.int64 import Int64
from pymongo.errors import WriteError

from onerow.core.corruption import NUMBERS, as_far_as_readable, problems, quarantine
from onerow.core.status import Status
from onerow.core.task import COLUMN, JSON_FIELDS, TIME_FIELDS
from onerow.ports import Move
from onerow.stores.mongo.connections import Collections
from onerow.stores.mongo.documents import Document, values_of
from onerow.stores.mongo.updates import update_of
from onerow.stores.mongo.values import to_json

_TIMES, _JSONS = frozenset(TIME_FIELDS), frozenset(JSON_FIELDS)
_MANY = 1_000
_OPTIONAL = {"elapsed_time", "slot", "key_slot", "children"}

_SUSPECT: Document = {
    "$or": [
        {"status": {"$nin": [status.value for status in Status]}},
        {"run_at": {"$not": {"$type": "date"}}},
        {"version": {"$not": {"$type": "number"}}},
        {"logs": {"$exists": True, "$not": {"$type": ["array", "javascript"]}}},
        *({COLUMN[field]: {"$gt": most}} for field, most in NUMBERS.items()),
        *(
            {COLUMN[field]: {"$exists": True, "$not": {"$type": ["number"] + ["null"] * (field in _OPTIONAL)}}}
            for field in NUMBERS
        ),
    ]
}


def set_aside(collections: Collections, ids: Sequence[Any], now: datetime) -> int:
    """Quarantine the unreadable ones of these documents; return how many."""
    done = 0
    for document in collections.tasks.find({"_id": {"$in": list(ids)}}):
        found = as_far_as_readable(values_of(document), _read)
        if not problems(found):
            continue
        update = update_of(Move(found, quarantine(found, now)), {"$literal": now})
        # The stored version, not the decoded one: it may have any type.
        where = {"_id": document["_id"], "version": document.get("version")}
        try:
            done += collections.tasks.update_one(where, update.change).modified_count
        except WriteError:
            continue  # quarantine the others
    return done


def suspects(collections: Collections) -> list[Any]:
    """Return the ids of documents with an invalid number, status, time or history; this scans the collection."""
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
