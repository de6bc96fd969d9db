"""Inserts: tasks are stored unchanged, and an existing id or held key is not inserted again."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onerow.core import rules, values
from onerow.core.filters import Filter
from onerow.core.status import PROCESSING, Status
from onerow.core.task import FIELDS, JSON_FIELDS, TIME_FIELDS, Task
from onerow.core.times import FAR
from onerow.ports import Existing, Inserted, Store
from tests.conformance.kit import HOUR, claim_one, every_row, new, put, same, stored, swap
from tests.samples import PLAN, a_task, json_values, moments, texts

_numbers = st.integers(0, 2**31 - 1)
_one_example_per_row = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def tasks_of_any_kind() -> st.SearchStrategy[Task]:
    """Tasks with any valid value in each field; no two share a key or a slot."""
    objects = st.dictionaries(texts, json_values, max_size=3).map(values.encode)
    text_or_none = st.none() | texts
    fields: dict[str, st.SearchStrategy[Any]] = {name: st.none() | moments for name in TIME_FIELDS}
    fields |= dict.fromkeys(("created_at", "run_at", "updated_at"), moments | st.just(FAR))
    fields |= dict.fromkeys(("pipeline", "phase", "user_id", "title", "limit_key"), texts)
    fields |= dict.fromkeys(
        ("parent_id", "awaiting", "error", "error_class", "leased_by", "unique_key", "unique_for"), text_or_none
    )
    fields |= dict.fromkeys(
        ("attempt", "retry_count", "max_retries", "retry_base", "crash_count", "rescue_count", "generation", "token"),
        _numbers,
    )
    fields |= {
        "version": st.integers(1, 2**31 - 1),
        "elapsed_time": st.none() | _numbers,
        "children": st.none() | _numbers,
        "priority": st.integers(-100, 100),
        "status": st.sampled_from(Status),
        "cancel_requested": st.booleans(),
        "own_retries": st.booleans(),
        "payload_json": json_values.map(values.encode),
        "progress_json": json_values.map(values.encode),
        "signals_json": st.just("[]"),
        "logs_json": st.just("[]"),
        "results_json": objects,
        "steps_json": objects,
        "metadata_json": objects,
    }
    assert set(FIELDS) - set(fields) == {"task_id", "slot", "key_slot", "held_key"}
    return st.fixed_dictionaries(fields).map(lambda given_: a_task(**given_)).filter(_has_lease_if_processing)


def _has_lease_if_processing(task: Task) -> bool:
    return task.status is not PROCESSING or (task.leased_by is not None and task.leased_until is not None)


@pytest.fixture
def numbers() -> Callable[[], str]:
    """Return a function that generates unique ids."""
    counter = iter(range(1_000_000))
    return lambda: f"t{next(counter)}"


@_one_example_per_row
@given(task=tasks_of_any_kind(), name=texts)
def test_every_field_is_stored_unchanged(store: Store, numbers: Callable[[], str], task: Task, name: str) -> None:
    task = task.with_changes(task.updated_at, task_id=numbers() + name)
    assert store.insert([task]) == [Inserted(task)]
    assert same(stored(store, task.task_id), task)


@settings(_one_example_per_row, max_examples=15)
@given(tasks=st.lists(tasks_of_any_kind(), min_size=2, max_size=4))
def test_every_field_of_a_batch_is_stored_unchanged(
    store: Store, numbers: Callable[[], str], tasks: list[Task]
) -> None:
    tasks = [task.with_changes(task.updated_at, task_id=numbers()) for task in tasks]
    assert store.insert(tasks) == [Inserted(task) for task in tasks]
    for task in tasks:
        assert same(stored(store, task.task_id), task)


@_one_example_per_row
@given(payload=json_values)
def test_p12_a_payload_is_stored_equal_as_a_json_value(
    store: Store, numbers: Callable[[], str], payload: object
) -> None:
    task_id = numbers()
    put(store, task_id, payload=payload)
    assert stored(store, task_id).payload == payload


@pytest.mark.parametrize(
    "payload",
    [
        "조수와 달 🌊",
        {"제목": ["밀물", None]},
        "\u2028\ufeff",
        2**63 - 1,
        -(2**63),
        5e-324,
        -0.0,
        1e308,
        "",
        [],
        {},
        None,
    ],
    ids=repr,
)
def test_unusual_payloads_are_unchanged_after_claim_and_completion(store: Store, payload: object) -> None:
    put(store, payload=payload)
    held = claim_one(store)
    assert held.payload == payload
    done = swap(store, held, rules.finish(held, values.encode(payload), store.now()))
    assert stored(store).payload == payload
    assert stored(store).results == {"script": payload}
    assert same(done, stored(store))


def test_a_large_payload_is_stored_completely(store: Store) -> None:
    payload = {"text": "조" * 300_000}
    put(store, payload=payload)
    assert stored(store).payload == payload


def test_json_columns_keep_their_exact_text(store: Store) -> None:
    """A swap compares texts, and must see a change only where there is one."""
    task = put(store, payload={"b": 1, "a": [1.0, "é"]})
    found = stored(store)
    assert {name: values.decode(getattr(found, name)) for name in JSON_FIELDS} == {
        name: values.decode(getattr(task, name)) for name in JSON_FIELDS
    }
    assert list(found.payload) == ["b", "a"]


def test_times_are_stored_to_the_millisecond(store: Store) -> None:
    now = store.now()
    assert now.microsecond % 1000 == 0
    assert now.utcoffset() is not None
    moment = now.replace(microsecond=7000)
    put(store, scheduled_time=moment, run_at=moment)
    assert (stored(store).scheduled_time, stored(store).run_at) == (moment, moment)
    put(store, "far", run_at=FAR)
    assert stored(store, "far").run_at == FAR


def test_an_empty_insert_returns_no_answers(store: Store) -> None:
    assert store.insert([]) == []


def test_inserting_an_existing_id_returns_the_existing_task(store: Store) -> None:
    first = put(store, title="first")
    assert store.insert([new(store, title="second")]) == [Existing(first)]
    assert stored(store).title == "first"


def test_inserting_a_held_key_returns_the_task_that_holds_it(store: Store) -> None:
    first = put(store, "a", unique="k")
    assert store.insert([new(store, "b", unique="k")]) == [Existing(first)]
    assert set(every_row(store)) == {"a"}


def test_a_key_is_unique_within_a_pipeline_and_a_user(store: Store) -> None:
    put(store, "a", unique="k")
    put(store, "b", unique="k", user_id="u1")
    put(store, "c", unique="k", pipeline="other")
    put(store, "d", unique="K")
    put(store, "e")
    put(store, "f")
    assert len(every_row(store)) == 6


def test_a_released_key_can_be_used_again(store: Store) -> None:
    first = put(store, "a", unique="k")
    swap(store, first, rules.cancel(first, store.now()))
    put(store, "b", unique="k")
    assert stored(store, "a").unique_key == "k"


def test_a_kept_key_blocks_inserts_after_the_task_ended_and_became_a_tombstone(store: Store) -> None:
    first = put(store, "a", unique="k", unique_for="1h", payload={"secret": 1})
    ended = swap(store, first, rules.cancel(first, store.now()))
    assert store.insert([new(store, "b", unique="k")]) == [Existing(ended)]
    grave = swap(store, ended, rules.bury(ended, store.now()))
    assert store.insert([new(store, "b", unique="k")]) == [Existing(grave)]
    assert store.insert([new(store, "a")]) == [Existing(grave)]
    released = swap(store, grave, rules.release_key(grave, store.now() + HOUR))
    assert released.held_key is None
    put(store, "b", unique="k")


def test_a_batch_insert_answers_for_each_row(store: Store) -> None:
    known = put(store, "known", unique="k")
    answers = store.insert(
        [new(store, "a"), new(store, "known"), new(store, "b", unique="k"), new(store, "c", unique="j")]
    )
    assert [type(answer) for answer in answers] == [Inserted, Existing, Existing, Inserted]
    assert [answer.task.task_id for answer in answers] == ["a", "known", "known", "c"]
    assert answers[1] == answers[2] == Existing(known)
    assert set(every_row(store)) == {"known", "a", "c"}


def test_a_batch_insert_may_contain_duplicates(store: Store) -> None:
    answers = store.insert(
        [new(store, "a", title="first"), new(store, "a", title="second"), new(store, "b", unique="k"),
         new(store, "c", unique="k")]
    )  # fmt: skip
    assert [type(answer) for answer in answers] == [Inserted, Existing, Inserted, Existing]
    assert [answer.task.task_id for answer in answers] == ["a", "a", "b", "b"]
    assert stored(store, "a").title == "first"


def test_a_big_batch_is_inserted_completely(store: Store) -> None:
    tasks = [new(store, f"t{n:04d}", payload={"n": n}) for n in range(2_500)]
    assert all(isinstance(answer, Inserted) for answer in store.insert(tasks))
    assert sum(tally.count for tally in store.count(Filter())) == 2_500
    assert stored(store, "t2499").payload == {"n": 2_499}


def test_p1_an_inserted_task_is_visible_to_other_processes(store: Store, again: Callable[[], Store]) -> None:
    task = put(store)
    store.close()
    assert stored(again()) == task


def test_p13_a_key_reveals_nothing_about_another_user_s_tasks(store: Store) -> None:
    put(store, "a", unique="k", user_id="ann")
    answers = store.insert([new(store, "b", unique="k", user_id="bob")])
    assert isinstance(answers[0], Inserted)


def test_a_second_prepare_changes_nothing(store: Store, again: Callable[[], Store]) -> None:
    task = put(store)
    store.prepare()
    again().prepare()
    assert stored(store) == task


def test_fetch_returns_each_existing_task_once(store: Store) -> None:
    put(store, "a")
    put(store, "b")
    assert sorted(task.task_id for task in store.fetch(["b", "unknown", "a", "a"])) == ["a", "b"]
    assert store.fetch([]) == []
    assert PLAN.knows(stored(store, "a").phase)


def test_a_store_has_a_url(store: Store) -> None:
    assert "://" in store.url
