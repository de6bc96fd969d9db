"""JSON in documents: it is read back unchanged, is readable in the database, and is never interpreted."""

from datetime import UTC
from typing import Any

import msgspec
import pytest
from bson.code import Code
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pymongo.collection import Collection

from onerow.core import rules, values
from onerow.core.errors import BadPayload
from onerow.core.filters import Filter
from onerow.ports import Inserted, LogLine, Move, Note, Swapped
from onerow.stores.mongo import MongoStore
from onerow.stores.mongo.values import to_bson, to_json
from tests.conformance.kit import claim_one, new, put, same, stored, swap
from tests.samples import json_values

Document = dict[str, Any]

tricky_texts = st.sampled_from(
    ["$", "$secret", "$$ROOT", "$$NOW", "$where", "$set", "$ref", "$id", "$db", "a.b", ".", "..", "a.$", "", "_id",
     "payload.topic", "$literal", "$expr", "$[]", "\ufeff$x", "0", "version"]
) | st.text(st.sampled_from("$.a0_\"\\{}:, "), max_size=8)  # fmt: skip
tricky_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | tricky_texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(tricky_texts, inner, max_size=3),
    max_leaves=10,
)  # fmt: skip
per_example = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def as_text(value: Any) -> str:
    """Return JSON, which distinguishes 1, 1.0 and true, and the order of keys."""
    return values.encode(value)


@given(value=tricky_values | json_values)
def test_every_json_text_is_read_back_unchanged(value: Any) -> None:
    text = as_text(value)
    assert to_json(to_bson(text)) == text


@pytest.fixture
def numbers() -> Any:
    counter = iter(range(1_000_000))
    return lambda: f"t{next(counter)}"


@per_example
@given(payload=tricky_values, result=tricky_values, title=tricky_texts, user_id=tricky_texts, key=tricky_texts)
def test_texts_that_look_like_operators_or_paths_are_stored_as_text(
    store: MongoStore, numbers: Any, payload: Any, result: Any, title: str, user_id: str, key: str
) -> None:
    task_id = numbers() + title
    task = new(store, task_id, payload=payload, title=title, user_id=user_id, limit_key=key, pipeline=f"p{key}")
    assert store.insert([task]) == [Inserted(task)]
    held = claim_one(store, ids=[task_id], pipeline=f"p{key}", worker=f"${title}", key_slots=1)
    assert (held.payload_json, held.leased_by) == (as_text(payload), f"${title}")
    other = new(store, numbers(), payload=payload)
    store.insert([other])
    done = rules.finish(held, as_text(result), store.now())
    noted = rules.annotate(other, as_text({"mine": payload}), store.now())
    assert store.swap([Move(held, done), Move(other, noted)]) == [Swapped(done), Swapped(noted)]
    assert stored(store, task_id).results_json == done.results_json
    assert same(stored(store, task_id), done)
    assert same(stored(store, other.task_id), noted)


@per_example
@given(text=tricky_texts, payload=tricky_values)
def test_search_text_is_never_an_operator_a_path_or_a_pattern(
    store: MongoStore, numbers: Any, text: str, payload: Any
) -> None:
    task_id = numbers()
    put(store, task_id, payload={"at": {"it": payload}}, title=f"x{text}y", user_id=text, pipeline=task_id)
    for where in (
        {"title_text": text.upper()}, {"user_id": text}, {"text": text}, {"payload": (("at", as_text({"it": payload})),)},
    ):  # fmt: skip
        assert [task.task_id for task in store.find(Filter(pipeline=task_id, **where)).tasks] == [task_id]
    for where in ({"title_text": f"{text}."}, {"payload": ((text, "no such"),)}, {"leased_by": text}):
        assert store.find(Filter(pipeline=task_id, **where)).tasks == []


@per_example
@given(name=tricky_texts, body=tricky_values)
def test_notes_and_output_store_any_text(store: MongoStore, numbers: Any, name: str, body: Any) -> None:
    kind = numbers() + name
    assert store.write_notes([Note(kind, name, body)]) == [True]
    (note,) = store.notes(kind)
    assert (note.name, as_text(note.body)) == (name, as_text(body))
    assert store.write_notes([msgspec.structs.replace(note, body=[body])]) == [True]
    assert as_text(store.notes(kind)[0].body) == as_text([body])
    store.append_log([LogLine(kind, store.now(), name, 1, "out", name)])
    assert [(line.phase, line.text) for line in store.read_log(kind).lines] == [(name, name)]


def test_stored_documents_have_native_dates_and_numbers(store: MongoStore, documents: Collection[Document]) -> None:
    task = put(store, payload={"topic": "조수", "list": [1, 2.5, None], "a.b": {"": True}}, metadata_json='{"mine":1}')
    held = claim_one(store)
    swap(store, held, rules.finish(held, '{"views":12345678901}', store.now(), by="w1"))
    found = documents.find_one({"_id": "t1"}) or {}
    assert found["payload"] == {"topic": "조수", "list": [1, 2.5, None], "a.b": {"": True}}
    assert found["results"] == {"script": {"views": 12345678901}}
    assert found["metadata"] == {"mine": 1}
    assert found["created_at"] == task.created_at
    assert found["created_at"].tzinfo is not None
    assert found["completed_at"].astimezone(UTC) == stored(store).completed_at
    assert [(entry["what"], entry["by"]) for entry in found["logs"]] == [("completed", "w1")]
    assert (found["status"], found["type"], found["version"]) == ("completed", "script", 3)
    assert "awaiting" not in found
    assert documents.count_documents({"payload.topic": "조수", "payload.list": 2.5}) == 1


def test_keys_that_look_like_operators_are_stored_as_text(store: MongoStore, documents: Collection[Document]) -> None:
    payload = {"$ref": "elsewhere", "$id": 1, "deep": {"$date": "2026-11-15"}, "price": "$5"}
    put(store, payload=payload)
    put(store, "t2", payload={"price": "$5", "say": 'she said "$": x'})
    found = documents.find_one({"_id": "t1"}) or {}
    assert isinstance(found["payload"], Code)
    assert values.decode(str(found["payload"])) == payload
    assert (documents.find_one({"_id": "t2"}) or {})["payload"] == {"price": "$5", "say": 'she said "$": x'}
    assert stored(store).payload == payload
    assert [task.task_id for task in store.find(Filter(payload=(("deep.$date", "2026-11-15"),))).tasks] == ["t1"]
    assert [task.task_id for task in store.find(Filter(payload=(("price", "$5"),))).tasks] == ["t2", "t1"]


@pytest.mark.parametrize(
    "pair", [(1, 1.0), (True, 1), (0.0, -0.0), (2**53, float(2**53)), ({"a": 1, "b": 2}, {"b": 2, "a": 1})], ids=repr
)
def test_a_change_of_type_or_key_order_is_written(store: MongoStore, pair: tuple[Any, Any]) -> None:
    task = put(store, metadata_json=as_text({"it": pair[0]}))
    for value in reversed(pair):
        task = swap(store, task, rules.annotate(task, as_text({"it": value}), store.now()))
        assert stored(store).metadata_json == as_text({"it": value})


def test_values_of_the_maximum_depth_are_read_back(store: MongoStore) -> None:
    deep: Any = 1
    for level in range(values.MAX_DEPTH):
        deep = [deep] if level % 2 else {"a": deep}
    put(store, payload=deep)
    put(store, "t2")
    held = [claim_one(store, ids=[task_id]) for task_id in ("t1", "t2")]
    text = as_text(deep)
    answers = store.swap([Move(task, rules.finish(task, text, store.now())) for task in held])
    assert all(isinstance(answer, Swapped) for answer in answers)
    assert stored(store).payload == deep
    assert stored(store, "t2").result == deep


@pytest.mark.parametrize(
    "piece", ['{"":1}', *(pytest.param(piece, marks=pytest.mark.slow) for piece in ("[]", "1", '"조"'))], ids=repr
)
def test_a_task_of_the_maximum_size_fits_into_a_document(store: MongoStore, piece: str) -> None:
    """Arrays of small values grow sixfold in BSON, so such columns are stored as text."""
    one = "[" + ",".join([piece] * (990_000 // (len(piece.encode()) + 1))) + "]"
    results = "{" + ",".join(f'"p{n}":{one}' for n in range(6)) + "}"
    task = put(store, payload_json=one)
    task = swap(store, task, task.with_changes(store.now(), results_json=results))
    assert stored(store).results == values.decode(results)
    assert stored(store).payload_json == one
    held = claim_one(store)
    done = swap(store, held, rules.finish(held, '"small"', store.now()))
    assert stored(store).results_json == done.results_json


def test_a_task_too_large_for_a_document_is_refused_and_the_others_of_its_batch_are_written(store: MongoStore) -> None:
    big = '"' + "x" * 9_000_000 + '"'
    with pytest.raises(BadPayload, match="16 MB"):
        store.insert([new(store, "big", payload_json=big, metadata_json=big)])
    assert store.fetch(["big"]) == []
    one, two = put(store, "a", payload_json=big), put(store, "b")
    with pytest.raises(BadPayload, match="16 MB"):
        store.swap(
            [
                Move(one, one.with_changes(store.now(), metadata_json=big)),
                Move(two, two.with_changes(store.now(), metadata_json="[1]")),
            ]
        )
    assert stored(store, "a") == one
    assert stored(store, "b").metadata_json == "[1]"
