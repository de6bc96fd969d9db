"""Small versioned records, compared and swapped like tasks."""

from collections.abc import Sequence
from datetime import datetime

import msgspec
from bson.max_key import MaxKey

from onerow.ports import Note
from onerow.stores.mongo.bulk_write import Insert, Outcome, Update, Write, write_each
from onerow.stores.mongo.connections import Collections, Connections
from onerow.stores.mongo.documents import Document, moment_of
from onerow.stores.mongo.values import to_bson, to_json

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def read_all(rooms: Collections, kind: str, since: str, before: str) -> list[Note]:
    """All notes of a kind, by name; those from `since` on and before `before`, where given."""
    # Keys sort by kind, then name; so a kind is a range of them.
    where = {"_id": {"$gte": _key(kind, since), "$lt": _key(kind, before or MaxKey())}}
    return [
        Note(kind, each["_id"]["name"], _decode(to_json(each["body"])), int(each["version"]), moment_of(each["updated_at"]))
        for each in rooms.notes.find(where).sort("_id")
    ]  # fmt: skip


def write(door: Connections, rooms: Collections, notes: Sequence[Note], now: datetime) -> list[bool]:
    """Each note if its version is still the stored one; 0 means that there must be none."""
    if not notes:
        return []
    outcomes = write_each(door, rooms, rooms.notes, [_write(note, now) for note in notes])
    return [outcome is Outcome.WRITTEN for outcome in outcomes]


def drop(rooms: Collections, kind: str, names: Sequence[str]) -> int:
    """Remove notes; how many."""
    return rooms.notes.delete_many({"_id": {"$in": [_key(kind, name) for name in names]}}).deleted_count


def _write(note: Note, now: datetime) -> Write:
    body = to_bson(_encode(note.body).decode())
    key = _key(note.kind, note.name)
    if note.version == 0:
        return Insert({"_id": key, "version": 1, "body": body, "updated_at": now})
    return Update(
        {"_id": key, "version": note.version}, {"$set": {"body": body, "updated_at": now}, "$inc": {"version": 1}}
    )


def _key(kind: str, name: object) -> Document:
    return {"kind": kind, "name": name}
