"""Documents that another program spoiled: they harm no other task."""

from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson.datetime_ms import DatetimeMS
from bson.objectid import ObjectId
from pymongo.collection import Collection
from pymongo.errors import WriteError

from onerow.core.status import FAILED
from onerow.ports import Note
from onerow.stores.mongo import MongoStore
from onerow.stores.mongo.connections import CODEC
from tests.conformance.kit import claim, every_row, put, read_everything, stored, work_off

Document = dict[str, Any]

LARGEST = DatetimeMS(8_640_000_000_000_000)  # JavaScript's largest date
SMALLEST = DatetimeMS(-8_640_000_000_000_000)
OTHERS = [f"t{n}" for n in range(5)]
REMOVED = "(removed)"


def spoil(documents: Collection[Document], key: str, value: Any) -> None:
    change = {"$unset": {key: 1}} if value is REMOVED else {"$set": {key: value}}
    documents.update_one({"_id": "bad"}, change, bypass_document_validation=True)


def the_bad_one(store: MongoStore) -> Any:
    (bad,) = (task for task_id, task in every_row(store).items() if task_id not in OTHERS)
    return bad


@pytest.mark.parametrize(
    "key, value",
    [
        ("run_at", LARGEST),
        ("run_at", SMALLEST),
        ("created_at", LARGEST),
        ("held_until", LARGEST),
        ("pipeline", 5),
        ("type", REMOVED),
        ("type", 5),
        ("version", REMOVED),
        ("version", None),
        ("token", "three"),
        ("limit_key", {"a": 1}),
        ("user_id", ["u"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("limits", [{}, {"slots": 100, "key_slots": 50}], ids=["", "limits"])
def test_a_spoiled_document_is_quarantined_and_the_others_run(
    store: MongoStore, documents: Collection[Document], key: str, value: Any, limits: dict[str, int]
) -> None:
    for task_id in ("bad", *OTHERS):
        put(store, task_id)
    spoil(documents, key, value)
    for _ in range(3):
        work_off(store, **limits)
        read_everything(store)
    assert {stored(store, task_id).phase for task_id in OTHERS} == {"image"}
    bad = the_bad_one(store)
    assert (bad.status, bad.error_class) == (FAILED, "corrupt")
    assert f"{key}: " in str(bad.error)


@pytest.mark.parametrize(
    "key, value", [("leased_until", LARGEST), ("token", "three"), ("type", REMOVED), ("pipeline", 5)], ids=str
)
def test_leases_of_the_others_can_be_read(
    store: MongoStore, documents: Collection[Document], key: str, value: Any
) -> None:
    for task_id in ("bad", *OTHERS):
        put(store, task_id)
    assert len(claim(store, 10)) == 6
    spoil(documents, key, value)
    assert {lease.task_id for lease in store.leases(limit=10)} == set(OTHERS)
    assert the_bad_one(store).error_class == "corrupt"


@pytest.mark.parametrize("task_id", [5, ObjectId("65f0c0ffee0000000000beef")], ids=str)
def test_a_document_whose_id_is_not_text_is_replaced_by_a_quarantined_one(
    store: MongoStore, documents: Collection[Document], task_id: Any
) -> None:
    for each in ("bad", *OTHERS):
        put(store, each, unique_key=each, held_key=each)
    document = documents.find_one_and_delete({"_id": "bad"})
    assert document is not None
    documents.insert_one(document | {"_id": task_id}, bypass_document_validation=True)
    for _ in range(3):
        work_off(store)
        read_everything(store)
    assert {stored(store, each).phase for each in OTHERS} == {"image"}
    bad = the_bad_one(store)
    assert (bad.task_id, bad.error_class) == (f"{type(task_id).__name__} {task_id}", "corrupt")
    assert documents.count_documents({"_id": task_id}) == 0


def test_a_date_beyond_python_s_years_in_a_payload_is_readable(
    store: MongoStore, documents: Collection[Document]
) -> None:
    for task_id in ("bad", *OTHERS):
        put(store, task_id)
    documents.update_one({"_id": "bad"}, {"$set": {"payload": {"until": LARGEST}}})
    assert len(work_off(store)) == 6
    assert stored(store, "bad").payload == {"until": {"$date": {"$numberLong": "8640000000000000"}}}


def test_text_that_is_not_utf8_is_read_with_escapes() -> None:
    broken = bson.encode({"title": "ZA"}).replace(b"ZA", b"\xffA")  # the test server does not accept it
    assert bson.decode(broken, CODEC) == {"title": "\\xffA"}


@pytest.mark.parametrize("key, value", [("run_at", LARGEST), ("created_at", SMALLEST), ("pipeline", 5)], ids=str)
def test_the_collection_refuses_values_that_can_t_be_read(
    store: MongoStore, documents: Collection[Document], key: str, value: Any
) -> None:
    put(store)
    documents = documents.with_options(CODEC)  # the error has the value
    with pytest.raises(WriteError, match="validation"):
        documents.update_one({"_id": "t1"}, {"$set": {key: value}})
    with pytest.raises(WriteError, match="validation"):
        documents.update_one({"_id": "t1"}, {"$set": {"status": "processing", "leased_by": "me"}})
    documents.update_one({"_id": "t1"}, {"$set": {"run_at": datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)}})


def test_a_damaged_note_is_ignored(store: MongoStore, documents: Collection[Document]) -> None:
    store.write_notes([Note("limit", "good", {"n": 1}), Note("limit", "bad", {"n": 2})])
    documents.database["onerow_note"].update_one({"_id.name": "bad"}, {"$set": {"updated_at": LARGEST}})
    assert [note.name for note in store.notes("limit")] == ["good"]
