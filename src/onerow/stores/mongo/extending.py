"""Heartbeats: extend the leases whose token still matches."""

from collections.abc import Sequence
from datetime import timedelta

from pymongo import ReturnDocument, UpdateOne

from onerow.ports import Held, Lease, Lost
from onerow.stores.mongo.connections import Collections
from onerow.stores.mongo.documents import Document, Stamp, moment_of

_PROJECTION = {"token": 1, "status": 1, "version": 1, "leased_until": 1, "cancel_requested": 1}


def extend(collections: Collections, leases: Sequence[Lease], lease_for: timedelta, stamp: Stamp) -> list[Held | Lost]:
    """See ports.Store.extend."""
    change = [
        {
            "$set": {
                "leased_until": {"$add": [stamp, lease_for // timedelta(milliseconds=1)]},
                "updated_at": stamp,
                "version": {"$add": ["$version", 1]},
            }
        }
    ]
    if len(leases) == 1:
        row = collections.tasks.find_one_and_update(
            _is_held(leases[0]), change, projection=_PROJECTION, return_document=ReturnDocument.AFTER
        )
        found = {} if row is None else {row["_id"]: row}
    else:
        collections.tasks.bulk_write([UpdateOne(_is_held(lease), change) for lease in leases], ordered=False)
        # Tokens only grow, so a lease that is held after the write was held during it.
        ids = [lease.task_id for lease in leases]
        found = {row["_id"]: row for row in collections.tasks.find({"_id": {"$in": ids}}, _PROJECTION)}
    return [_answer(lease, found.get(lease.task_id)) for lease in leases]


def _is_held(lease: Lease) -> Document:
    return {"_id": lease.task_id, "token": lease.token, "status": "processing"}


def _answer(lease: Lease, row: Document | None) -> Held | Lost:
    if row is None or row["token"] != lease.token or row["status"] != "processing":
        return Lost(lease.task_id)
    return Held(lease.task_id, int(row["version"]), moment_of(row["leased_until"]), bool(row.get("cancel_requested")))
