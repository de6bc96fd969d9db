"""Many one-document writes at once, and an answer for each.

MongoDB 8.0 answers a bulk write operation by operation. Older servers give only a sum, from which nobody can tell who
won; there the writes go singly, several in flight.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Any

import msgspec
from pymongo import InsertOne, UpdateOne
from pymongo.collection import Collection
from pymongo.errors import ClientBulkWriteException, DuplicateKeyError, WriteError

from onerow.stores.mongo.connections import REFUSALS, Collections, Connections, is_refusal
from onerow.stores.mongo.documents import Document

_DUPLICATE = 11000


class Outcome(Enum):
    WRITTEN = "written"
    MISSED = "missed"  # no document met the condition
    TAKEN = "taken"  # a unique index refused it
    REFUSED = "refused"  # the document can't be changed so


class Update(msgspec.Struct, frozen=True):
    """Change one document if it still meets the condition; never an upsert, which would bring purged rows back."""

    where: Document
    change: Document


class Insert(msgspec.Struct, frozen=True):
    """Put one document in."""

    document: Document


Write = Update | Insert


_ANSWERS = dict.fromkeys(REFUSALS, Outcome.REFUSED) | {_DUPLICATE: Outcome.TAKEN}


def write_each(
    door: Connections, rooms: Collections, collection: Collection[Document], writes: Sequence[Write]
) -> list[Outcome]:
    """Do every write, in order where they concern the same document; what became of each."""
    if len(writes) == 1:
        return [write_one(collection, writes[0])]
    if rooms.answers_each:
        return _in_bulk(rooms, collection, writes)
    if len({_key(write) for write in writes}) < len(writes):
        return [write_one(collection, write) for write in writes]
    return list(door.in_flight().map(lambda write: write_one(collection, write), writes))


def write_one(collection: Collection[Document], write: Write) -> Outcome:
    """Do one write; what became of it."""
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


def _in_bulk(rooms: Collections, collection: Collection[Document], writes: Sequence[Write]) -> list[Outcome]:
    name = collection.full_name
    models: list[Any] = [
        InsertOne(write.document, namespace=name)
        if isinstance(write, Insert)
        else UpdateOne(write.where, write.change, namespace=name)
        for write in writes
    ]
    lost: dict[int, Outcome] = {}
    try:
        result = rooms.client.bulk_write(models, ordered=False, verbose_results=True, write_concern=rooms.concern)
    except ClientBulkWriteException as error:
        refused: list[Document] = error.details["writeErrors"]
        # Only a refusal is an answer; after anything else nobody knows what was written.
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
