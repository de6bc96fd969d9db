"""Inserting tasks, or finding the documents that already exist."""

from collections.abc import Sequence
from typing import Any

from pymongo import errors
from pymongo.client_session import ClientSession
from pymongo.collection import Collection

from onerow.core.corruption import decoded
from onerow.core.errors import BadInput, RetryTransaction, StoreError
from onerow.core.task import Task
from onerow.ports import Existing, Inserted
from onerow.stores.mongo.connections import DUPLICATE, Collections
from onerow.stores.mongo.documents import ID, Document, document_of, task_of
from onerow.stores.mongo.swapping import holding

_TRIES = 10

Answer = Inserted | Existing


def insert(collections: Collections, tasks: Sequence[Task]) -> list[Answer]:
    """See ports.Store.insert; not in a transaction, since a standalone server has none."""
    answers: dict[int, Answer] = {}
    left = list(range(len(tasks)))
    for _ in range(_TRIES):
        refused = _put(collections.tasks, [tasks[index] for index in left])
        answers |= {index: Inserted(tasks[index]) for position, index in enumerate(left) if position not in refused}
        left = [left[position] for position in refused]
        # The holder of the key may have released it between the insert and this read: then try again.
        known = _known(collections.tasks, [tasks[index] for index in left])
        answers |= {index: Existing(known[position]) for position, index in enumerate(left) if position in known}
        left = [index for index in left if index not in answers]
        if not left:
            return [answers[index] for index in range(len(tasks))]
    raise StoreError(f"task {tasks[left[0]].task_id} breaks a rule of the collection", fix="run: onerow doctor")


def insert_in(collections: Collections, tasks: Sequence[Task], tx: Any) -> list[Answer]:
    """Insert in the caller's transaction. It reads first, since a refused insert would abort the transaction."""
    collection = _callers(collections, tx)
    answers: list[Answer] = []
    for task in tasks:
        known = _known(collection, [task], session=tx)
        if known:
            answers.append(Existing(known[0]))
            continue
        try:
            collection.insert_one(document_of(task), session=tx)
        except errors.DuplicateKeyError as error:
            raise RetryTransaction(
                f"task {task.task_id}: another transaction added it or took its unique key",
                fix="abort this one and run it again",
            ) from error
        answers.append(Inserted(task))
    return answers


def _put(collection: Collection[Document], tasks: Sequence[Task]) -> list[int]:
    """Insert the tasks; return the positions of those that a unique index refused."""
    try:
        if len(tasks) == 1:
            collection.insert_one(document_of(tasks[0]))
        else:
            collection.insert_many([document_of(task) for task in tasks], ordered=False)
    except errors.DuplicateKeyError:
        return [0]
    except errors.BulkWriteError as error:
        details: Document = dict(error.details)
        if details.get("writeConcernErrors") or any(each["code"] != DUPLICATE for each in details["writeErrors"]):
            raise
        return sorted(each["index"] for each in details["writeErrors"])
    return []


def _known(
    collection: Collection[Document], tasks: Sequence[Task], session: ClientSession | None = None
) -> dict[int, Task]:
    """Return position → the stored task with the same id, or else with the same unique key."""
    if not tasks:
        return {}
    ids = list({task.task_id for task in tasks})
    by_id = {each["_id"]: each for each in collection.find({"_id": {"$in": ids}}, session=session)}
    found = {}
    for position, task in enumerate(tasks):
        there = by_id.get(task.task_id)
        if there is None and task.held_key is not None:
            there = collection.find_one(holding(task), session=session)
        if there is not None:
            (found[position],) = decoded([there], task_of, ID)
    return found


def _callers(collections: Collections, tx: Any) -> Collection[Document]:
    """Return the task collection through the caller's client, which the session belongs to."""
    if not isinstance(tx, ClientSession):
        raise BadInput(
            f"tx: {type(tx).__name__} is not a transaction",
            fix="pass the pymongo ClientSession of your transaction",
            field="tx",
        )
    if not tx.in_transaction:
        raise BadInput(
            "tx: no transaction is open in this session", fix="call session.start_transaction() first", field="tx"
        )
    if not collections.has_members:
        raise BadInput(
            "tx: a MongoDB server that stands alone has no transactions", fix="make it a replica set", field="tx"
        )
    theirs = tx.client
    if not theirs.nodes:
        theirs.admin.command("ping")  # an unused client does not know its servers yet
    if not (theirs.nodes & collections.client.nodes):
        raise BadInput(
            f"tx: this session is on {sorted(theirs.nodes)}, not on the queue's server",
            fix="use a session on the queue's own server",
            field="tx",
        )
    database = collections.database
    return theirs.get_database(database.name, codec_options=database.codec_options)[collections.tasks.name]
