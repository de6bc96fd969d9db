"""One move as the update of one document.

Operator updates only: a user's value stands under $set, where the server takes it for what it is; in a pipeline update
`{"topic": "$secret"}` would read another field. Never a replacement, which would erase keys of newer code.
"""

from typing import Any

from onerow.core.task import changed_fields
from onerow.ports import Move
from onerow.stores.mongo.bulk_write import Update
from onerow.stores.mongo.clock import Stamp
from onerow.stores.mongo.documents import KEY, MARK, Document, stored
from onerow.stores.mongo.schema import A_TIME
from onerow.stores.mongo.values import to_bson


def update_of(move: Move, stamp: Stamp) -> Update:
    """The write of one move."""
    before, after = move.before, move.after
    where: Document = {"_id": before.task_id, "version": before.version}
    if move.if_dead:
        # By the server's clock at the time of the write. Without a time, $lte would hold: null sorts before dates.
        where |= {"leased_until": A_TIME, "$expr": {"$lte": ["$leased_until", stamp]}}
    change: Document = {}
    written: Document = {"version": after.version}
    for field in changed_fields(before, after):
        if field == "logs_json" and (added := _added(before.logs_json, after.logs_json)) is not None:
            change["$push"] = {"logs": {"$each": added}}
        else:
            written[KEY[field]] = stored(after, field)
    if after.parent_id is not None and after.ended:
        # An update's event shows only what it changed: this is by what a change stream knows that a child ended.
        written[MARK] = None
    change["$set"] = written
    return Update(where, change)


def _added(before: str, after: str) -> list[Any] | None:
    """The entries that history gained, if it only grew: old ones are not sent again."""
    if before == "[]" or not after.startswith(before[:-1]):
        return None
    added = to_bson(f"[{after[len(before) :]}")
    return added if isinstance(added, list) else None
