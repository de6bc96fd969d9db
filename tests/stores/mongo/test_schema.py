"""The schema that `prepare` creates, the findings of `inspect`, and what is refused."""

import multiprocessing
from datetime import UTC, datetime
from typing import Any

import pymongo
import pytest
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import WriteError

from onerow.core import rules
from onerow.core.errors import BadInput, BadStoreUrl, CodeTooOld, SchemaMissing, StoreError, StoreUnavailable
from onerow.core.filters import Filter
from onerow.core.status import Status
from onerow.ports import Note
from onerow.stores.mongo import MongoStore, schema
from tests.conformance.kit import claim_one, new, put, stored, swap

Document = dict[str, Any]


def test_a_database_without_a_schema_is_refused(mongo_url: str, documents: Collection[Document]) -> None:
    store = MongoStore(mongo_url)
    for operation in (lambda: store.fetch(["x"]), lambda: store.insert([new(store)])):
        with pytest.raises(SchemaMissing, match="onerow migrate"):
            operation()
    assert documents.count_documents({}) == 0
    store.prepare()
    put(store)
    store.close()


def test_a_database_that_needs_newer_code_is_refused(store: MongoStore, mongo_url: str) -> None:
    with pymongo.MongoClient[Document](mongo_url) as client:
        client.get_default_database()["onerow_meta"].update_one({"_id": "min_code"}, {"$set": {"value": 99}})
    store.close()
    for operation in (store.prepare, store.check, lambda: store.fetch(["x"])):
        with pytest.raises(CodeTooOld, match="99"):
            operation()


def _prepare(url: str) -> None:
    store = MongoStore(url)
    store.prepare()
    store.close()


@pytest.mark.slow
def test_many_processes_may_prepare_at_once(mongo_url: str) -> None:
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=_prepare, args=(mongo_url,)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(900)
    assert [process.exitcode for process in processes] == [0] * 4
    store = MongoStore(mongo_url)
    assert {finding.level for finding in store.inspect()} == {"good"}
    store.close()


def test_the_server_refuses_an_unknown_status(store: MongoStore, documents: Collection[Document]) -> None:
    put(store)
    with pytest.raises(WriteError, match="validation"):
        documents.update_one({"_id": "t1"}, {"$set": {"status": "done"}})
    lease = {"leased_by": "w1", "leased_until": datetime.now(UTC)}
    for status in Status:
        documents.update_one({"_id": "t1"}, {"$set": {"status": status.value} | lease})


def test_a_missing_index_is_reported_and_recreated(store: MongoStore, documents: Collection[Document]) -> None:
    documents.drop_index("task_slot")
    documents.drop_index("task_ended")
    findings = {finding.what.split()[2]: finding for finding in store.inspect() if finding.level != "good"}
    assert {name: finding.level for name, finding in findings.items()} == {"task_slot": "bad", "task_ended": "slow"}
    assert {finding.fix for finding in findings.values()} == {"onerow migrate"}
    store.prepare()
    assert {finding.level for finding in store.inspect()} == {"good"}


def test_an_index_with_another_definition_is_reported(store: MongoStore, documents: Collection[Document]) -> None:
    documents.drop_index("task_unique")
    documents.create_index([("pipeline", 1)], name="task_unique")
    assert [finding.level for finding in store.inspect() if "task_unique" in finding.what] == ["bad"]
    with pytest.raises(StoreError, match="task_unique"):
        store.prepare()


def test_a_missing_validator_is_reported_and_the_hint_restores_it(
    mongo_url: str, documents: Collection[Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Document] = []
    command = Database.command

    def record(self: Database[Document], name: Any, *given: Any, **more: Any) -> Any:
        if name == "collMod":  # the server of the tests may lack it
            sent.append(more["validator"])
            return {}
        return command(self, name, *given, **more)

    monkeypatch.setattr(Database, "command", record)
    documents.database.create_collection(documents.name)
    store = MongoStore(mongo_url)
    store.prepare()
    (finding,) = [finding for finding in store.inspect() if finding.level != "good"]
    assert "validat" in finding.what
    assert finding.fix.startswith("onerow migrate")
    assert "collMod" in finding.fix
    sent.clear()
    store.prepare()  # what `onerow migrate` runs
    assert sent == [schema.VALIDATOR]
    documents.database["onerow_meta"].update_one({"_id": "schema"}, {"$set": {"value": schema.SCHEMA + 1}})
    store.prepare()  # newer code has its own validator
    assert len(sent) == 1
    store.close()


def test_the_message_of_an_unreachable_server_promises_no_retry() -> None:
    store = MongoStore("mongodb://u:secret@127.0.0.1:1/db?serverSelectionTimeoutMS=200")
    with pytest.raises(StoreUnavailable) as raised:
        store.check()
    store.close()
    message = str(raised.value)
    assert message.startswith("mongodb://u:***@127.0.0.1:1/db")
    assert "again" not in message
    assert "; " not in message  # the command line then says what to check


def test_an_existing_collection_is_migrated(mongo_url: str, documents: Collection[Document]) -> None:
    documents.insert_one({"_id": "by hand", "type": "script"})
    store = MongoStore(mongo_url)
    store.prepare()
    assert schema.missing_indexes(store._connections.collections()) == []
    put(store)
    store.close()


def test_keys_of_newer_code_survive_every_write(store: MongoStore, documents: Collection[Document]) -> None:
    put(store)
    documents.update_one({"_id": "t1"}, {"$set": {"colour": "blue"}})
    held = claim_one(store)
    swap(store, held, rules.finish(held, "1", store.now()))
    found = documents.find_one({"_id": "t1"}) or {}
    assert (found["colour"], found["status"]) == ("blue", "completed")


def test_a_document_written_by_hand_is_a_task(store: MongoStore, documents: Collection[Document]) -> None:
    now = store.now()
    documents.insert_one(
        {"_id": "by hand", "pipeline": "videos", "type": "script", "status": "waiting", "run_at": now,
         "created_at": now, "updated_at": now, "priority": 0, "token": 0, "attempt": 0, "version": 1,
         "payload": {"topic": "tides"}}
    )  # fmt: skip
    assert stored(store, "by hand").payload == {"topic": "tides"}
    held = claim_one(store)
    done = swap(store, held, rules.finish(held, "1", store.now()))
    assert (done.status, done.max_retries, done.results) == (Status.COMPLETED, 3, {"script": 1})
    assert stored(store, "by hand").history[-1].what == "completed"


def test_two_queues_share_a_database_under_different_names(store: MongoStore, mongo_url: str) -> None:
    other = MongoStore(mongo_url, collection="other_queue")
    other.prepare()
    put(store)
    put(other, "t2")
    assert [task.task_id for task in other.find(Filter()).tasks] == ["t2"]
    assert other.write_notes([Note("k", "n", 1)]) == [True]
    assert store.notes("k") == []
    other.close()


@pytest.mark.parametrize(
    "url",
    ["mongodb://127.0.0.1:1/", "mongodb://", "http://x/y", "mongodb://127.0.0.1:banana/x", "mongodb://h/x?w=banana=1"],
)
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(BadStoreUrl):
        MongoStore(url)


def test_the_password_is_masked() -> None:
    store = MongoStore("mongodb://ann:s3cret@127.0.0.1:1/x?serverSelectionTimeoutMS=50&authSource=admin")
    assert store.url == "mongodb://ann:***@127.0.0.1:1/x?serverSelectionTimeoutMS=50&authSource=admin"
    with pytest.raises(StoreUnavailable) as caught:
        store.prepare()
    assert "s3cret" not in str(caught.value)
    store.close()


def test_an_invalid_tx_is_refused(store: MongoStore, mongo_url: str) -> None:
    with pytest.raises(BadInput, match="ClientSession"):
        store.insert([new(store)], tx=object())
    with (
        pymongo.MongoClient[Document](mongo_url) as client,
        client.start_session() as session,
        pytest.raises(BadInput, match="start_transaction"),
    ):
        store.insert([new(store)], tx=session)
    if not store._connections.collections().has_members:
        with (
            pymongo.MongoClient[Document](mongo_url) as client,
            client.start_session() as session,
            session.start_transaction(),
            pytest.raises(BadInput, match="replica set"),
        ):
            store.insert([new(store)], tx=session)
    assert store.fetch(["t1"]) == []


def test_a_store_in_the_callers_collection_uses_its_client_and_leaves_it_open(mongo_url: str) -> None:
    with pymongo.MongoClient[Document](mongo_url, tz_aware=True) as client:
        collection = client.get_default_database()["news"]
        store = MongoStore.of(collection)
        assert store.url.endswith(f"/{collection.database.name}")
        store.prepare()
        put(store, task_id="a")
        store.close()
        assert [row["_id"] for row in collection.find()] == ["a"]
        assert [task.task_id for task in store.fetch(["a"])] == ["a"]
