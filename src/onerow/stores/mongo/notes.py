"""Notes: small versioned records, written by compare-and-swap."""

from collections.abc import Sequence
from datetime import datetime

import msgspec
from bson.max_key import MaxKey

from onerow.ports import Note
from onerow.stores.mongo.bulk_write import Insert, Outcome, Update, Write, write_each
from onerow.stores.mongo.connections import Collections, Connections
from onerow.stores.mongo.documents import Document, moment_of
from onerow.stores.mongo.values import to_bson, to_json
from onerow.stores.shared.readable_notes import readable_notes

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def read_all(collections: Collections, kind: str, since: str, before: str) -> list[Note]:
    """Return the notes of a kind, by name, optionally only names in [since, before)."""
    # Keys sort by kind, then by name, so a kind is a range of keys.
    where = {"_id": {"$gte": _key(kind, since), "$lt": _key(kind, before or MaxKey())}}
    return readable_notes(kind, collections.notes.find(where).sort("_id"), _note, lambda each: each["_id"])


def _note(each: Document) -> Note:
    key = each["_id"]
    return Note(
        key["kind"], key["name"], _decode(to_json(each["body"])), int(each["version"]), moment_of(each["updated_at"])
    )


def write(connections: Connections, collections: Collections, notes: Sequence[Note], now: datetime) -> list[bool]:
    """Write each note whose version is the stored one (0: it must not exist); return which were written."""
    if not notes:
        return []
    outcomes = write_each(connections, collections, collections.notes, [_write(note, now) for note in notes])
    return [outcome is Outcome.WRITTEN for outcome in outcomes]


def drop(collections: Collections, kind: str, names: Sequence[str]) -> int:
    """Remove notes; return how many there were."""
    return collections.notes.delete_many({"_id": {"$in": [_key(kind, name) for name in names]}}).deleted_count


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
