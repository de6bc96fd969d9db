"""Translate a move to the update of one document.

Updates use operators only. Under $set the server stores a user's value unchanged; in an aggregation pipeline
`{"topic": "$secret"}` would read another field. A replacement would erase keys that newer code wrote.
"""

from typing import Any

from onerow.core.task import changed_fields
from onerow.ports import Move
from onerow.stores.mongo.bulk_write import Update
from onerow.stores.mongo.documents import KEY, Document, Stamp, stored
from onerow.stores.mongo.schema import A_TIME
from onerow.stores.mongo.values import to_bson


def update_of(move: Move, stamp: Stamp) -> Update:
    """Return the update of one move."""
    before, after = move.before, move.after
    where: Document = {"_id": before.task_id, "version": before.version}
    if move.if_dead:
        # Compared with the server's clock at the time of the write. A_TIME excludes null, which sorts before dates.
        where |= {"leased_until": A_TIME, "$expr": {"$lte": ["$leased_until", stamp]}}
    change: Document = {}
    written: Document = {"version": after.version}
    for field in changed_fields(before, after):
        if field == "logs_json" and (added := _added(before.logs_json, after.logs_json)) is not None:
            change["$push"] = {"logs": {"$each": added}}
        else:
            written[KEY[field]] = stored(after, field)
    change["$set"] = written
    return Update(where, change)


def _added(before: str, after: str) -> list[Any] | None:
    """Return the entries appended to the history, so that only those are sent; None if it changed otherwise."""
    if before == "[]" or not after.startswith(before[:-1]):
        return None
    added = to_bson(f"[{after[len(before) :]}")
    return added if isinstance(added, list) else None
