"""Many one-document writes at once, with an answer for each.

MongoDB 8.0 answers a bulk write per operation. Older servers return only totals, which do not tell which writes
succeeded, so the writes are sent one by one, several in flight.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Any

import msgspec
from pymongo import InsertOne, UpdateOne
from pymongo.collection import Collection
from pymongo.errors import ClientBulkWriteException, DuplicateKeyError, WriteError

from onerow.stores.mongo.connections import DUPLICATE, REFUSALS, Collections, Connections, is_refusal
from onerow.stores.mongo.documents import Document


class Outcome(Enum):
    WRITTEN = "written"
    MISSED = "missed"  # no document met the condition
    TAKEN = "taken"  # a unique index refused it
    REFUSED = "refused"  # the server rejects this change to the document


class Update(msgspec.Struct, frozen=True):
    """Update one document if it meets the condition. Never an upsert, which would recreate purged documents."""

    where: Document
    change: Document


class Insert(msgspec.Struct, frozen=True):
    """Insert one document."""

    document: Document


Write = Update | Insert


_ANSWERS = dict.fromkeys(REFUSALS, Outcome.REFUSED) | {DUPLICATE: Outcome.TAKEN}


def write_each(
    connections: Connections, collections: Collections, collection: Collection[Document], writes: Sequence[Write]
) -> list[Outcome]:
    """Execute the writes, keeping the order of those to the same document; return the outcome of each."""
    if len(writes) == 1:
        return [write_one(collection, writes[0])]
    if collections.answers_each:
        return _in_bulk(collections, collection, writes)
    if len({_key(write) for write in writes}) < len(writes):
        return [write_one(collection, write) for write in writes]
    return list(connections.in_flight().map(lambda write: write_one(collection, write), writes))


def write_one(collection: Collection[Document], write: Write) -> Outcome:
    """Execute one write; return its outcome."""
    try:
        if isinstance(write, Insert):
            collection.insert_one(write.document)
            return Outcome.WRITTEN
        found = collection.update_one(write.where, write.change).matched_count
    except DuplicateKeyError:
        return Outcome.TAKEN
    except OverflowError:
        return Outcome.REFUSED
    except WriteError as error:
        if not is_refusal(error):
            raise
        return Outcome.REFUSED
    return Outcome.WRITTEN if found else Outcome.MISSED


def _in_bulk(collections: Collections, collection: Collection[Document], writes: Sequence[Write]) -> list[Outcome]:
    name = collection.full_name
    models: list[Any] = [
        InsertOne(write.document, namespace=name)
        if isinstance(write, Insert)
        else UpdateOne(write.where, write.change, namespace=name)
        for write in writes
    ]
    lost: dict[int, Outcome] = {}
    try:
        result = collections.client.bulk_write(
            models, ordered=False, verbose_results=True, write_concern=collections.concern
        )
    except ClientBulkWriteException as error:
        refused: list[Document] = error.details["writeErrors"]
        # Only these errors have a known outcome; after any other error it is unknown what was written.
        if error.error or error.write_concern_errors or any(each["code"] not in _ANSWERS for each in refused):
            raise
        lost = {each["idx"]: _ANSWERS[each["code"]] for each in refused}
        if error.partial_result is None or len(lost) == len(writes):
            return [lost[index] for index in range(len(writes))]
        result = error.partial_result
    inserted, updated = result.insert_results, result.update_results
    return [
        lost[index]
        if index in lost
        else Outcome.WRITTEN
        if index in inserted or (index in updated and updated[index].matched_count)
        else Outcome.MISSED
        for index in range(len(writes))
    ]


def _key(write: Write) -> str:
    return repr(write.document["_id"] if isinstance(write, Insert) else write.where["_id"])
