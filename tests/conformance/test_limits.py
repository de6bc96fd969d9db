"""Limits per phase and per key hold under any claim; full keys do not block the tasks of other keys."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from onerow.core import rules
from onerow.core.rules.attempts import Jumped
from onerow.core.slots import PhaseSlots
from onerow.core.status import PROCESSING
from onerow.core.task import Task
from onerow.ports import Claim, Store
from tests.conformance.kit import (
    HOUR,
    MINUTE,
    claim,
    claim_one,
    claimed_ids,
    every_row,
    new,
    put,
    put_many,
    stored,
    swap,
    want,
)
from tests.runner.seeded import new_name
from tests.samples import BROKEN, PLAN, SECOND


def done(store: Store, *tasks: Task) -> None:
    """Complete the tasks, so that their slots become free."""
    for task in tasks:
        swap(store, task, rules.finish(task, None, store.now()))


def test_p7_no_more_tasks_run_at_once_than_the_limit_allows(store: Store, again: Callable[[], Store]) -> None:
    put_many(store, 5)
    first = claim(store, slots=2)
    assert [task.slot for task in first] == [0, 1]
    assert claim(again(), slots=2, worker="w2") == []
    done(store, first[0])
    (second,) = claim(again(), slots=2, worker="w2")
    assert (second.task_id, second.slot) == ("t0002", 0)
    assert claim(store, slots=2) == []
    assert {task.slot for task in every_row(store).values() if task.status is PROCESSING} == {0, 1}


def test_every_outcome_of_an_attempt_frees_its_slot(store: Store) -> None:
    put(store)
    now = store.now()
    leaving: list[Callable[[Task], Task]] = [
        lambda task: rules.snooze(task, timedelta(0), now),
        lambda task: rules.hand_back(task, now),
        lambda task: rules.park(rules.signal(task, "x", "1", "s", now), "signal:x", None, now),
        lambda task: rules.rescue(task, now),
        lambda task: replace(rules.fail(task, BROKEN, PLAN, now), run_at=now),
        lambda task: rules.finish(task, None, now),
    ]
    for leave in leaving:
        held = claim_one(store, slots=1, key_slots=1)
        assert held.slot == 0
        after = leave(held)
        after = swap(store, held, replace(after, version=held.version + 1))
        assert (after.slot, after.key_slot, stored(store).slot) == (None, None, None)


def test_a_key_that_a_jump_sets_counts_in_the_phase_after_it(store: Store) -> None:
    for task_id, key in (("a", "heavy"), ("b", ""), ("c", "light")):
        put(store, task_id, limit_key=key)
    held = {task.task_id: task for task in claim(store, key_slots=1)}
    for task_id, new_key in (("a", None), ("b", "heavy"), ("c", "")):
        outcome = Jumped("video", limit_key=new_key)
        after = rules.decide(held[task_id], PLAN, outcome, store.now(), "w1")
        assert after is not None
        swap(store, held[task_id], after)
    assert {task_id: task.limit_key for task_id, task in every_row(store).items()} == {
        "a": "heavy",
        "b": "heavy",
        "c": "",
    }
    first = claim(store, phase="video", key_slots=1)
    assert sorted(task.task_id for task in first) == ["a", "c"]  # b waits for the slot of its new key
    done(store, *first)
    assert claimed_ids(store, phase="video", key_slots=1) == ["b"]


def test_a_slot_belongs_to_one_phase_of_one_pipeline(store: Store) -> None:
    put(store, "a")
    put(store, "b", phase="video")
    put(store, "c", pipeline="posts")
    for pipeline, phase in (("videos", "script"), ("videos", "video"), ("posts", "script")):
        (task,) = claim(store, pipeline=pipeline, phase=phase, slots=1)
        assert task.slot == 0


def test_a_lowered_limit_applies_after_the_running_tasks_end(store: Store) -> None:
    put_many(store, 8)
    running = claim(store, slots=3)
    assert [task.slot for task in running] == [0, 1, 2]
    assert claim(store, slots=1) == []
    done(store, running[0])
    assert claim(store, slots=1) == []  # slot 0 is free, and two are still processing
    done(store, running[1])
    assert claim(store, slots=1) == []
    done(store, running[2])
    (task,) = claim(store, slots=1)
    assert task.slot == 0
    assert claim(store, slots=1) == []


def test_a_raised_limit_applies_at_once(store: Store) -> None:
    put_many(store, 5)
    assert len(claim(store, slots=1)) == 1
    assert [task.slot for task in claim(store, slots=3)] == [1, 2]


def test_a_limit_counts_running_tasks_without_a_slot(store: Store) -> None:
    put_many(store, 4)
    assert [task.slot for task in claim(store, 2)] == [None, None]
    assert claim(store, slots=2) == []
    assert len(claim(store, slots=3)) == 1


def test_a_limit_per_key_counts_running_tasks_without_a_slot(store: Store) -> None:
    for n in range(4):
        put(store, f"a{n}", limit_key="ann")
    put(store, "b", limit_key="bob")
    assert [task.key_slot for task in claim(store, 2)] == [None, None]
    assert claimed_ids(store, key_slots=2) == ["b"]
    assert claimed_ids(store, key_slots=2, ids=["a2", "a3"]) == []
    assert claimed_ids(store, key_slots=3) == ["a2"]


def test_a_limit_of_zero_lets_no_task_start(store: Store) -> None:
    put_many(store, 2)
    assert claim(store, slots=0) == []
    put(store, "k", limit_key="ann", phase="video")
    assert claim(store, phase="video", key_slots=0) == []


def test_each_key_has_its_own_limit(store: Store) -> None:
    for n in range(3):
        put(store, f"a{n}", limit_key="ann")
        put(store, f"b{n}", limit_key="bob")
    tasks = claim(store, key_slots=2)
    assert sorted((task.limit_key, task.key_slot) for task in tasks) == [("ann", 0), ("ann", 1), ("bob", 0), ("bob", 1)]
    assert [task.task_id for task in tasks] == ["a0", "a1", "b0", "b1"]
    assert claim(store, key_slots=2) == []
    done(store, tasks[0])
    (task,) = claim(store, key_slots=2)
    assert (task.task_id, task.key_slot) == ("a2", 0)


def test_a_task_without_a_key_has_no_limit_per_key(store: Store) -> None:
    put_many(store, 4)
    put(store, "z", limit_key="ann")
    tasks = claim(store, key_slots=1)
    assert [task.key_slot for task in tasks] == [None, None, None, None, 0]


def test_tasks_of_a_full_key_do_not_block_the_tasks_of_other_keys(store: Store) -> None:
    """The others are found behind any number of tasks of a full key."""
    store.insert([new(store, f"a{n:03d}", limit_key="ann", priority=-5) for n in range(600)])
    put(store, "b", limit_key="bob", priority=7)
    put(store, "c")
    assert claimed_ids(store, 1, key_slots=1) == ["a000"]
    assert claimed_ids(store, 10, key_slots=1) == ["c", "b"]


def test_tasks_with_and_without_a_key_are_claimed_in_one_order(store: Store) -> None:
    now = store.now()
    put(store, "c", limit_key="ann", run_at=now - SECOND)
    put(store, "a", limit_key="zoe", priority=-1)
    put(store, "b", run_at=now - 2 * SECOND)
    put(store, "d", limit_key="ann")
    put(store, "not yet", limit_key="bob", run_at=now + HOUR, priority=-9)
    put(store, "e", limit_key="bob", priority=3)
    assert claimed_ids(store, 2, key_slots=2) == ["a", "b"]
    assert claimed_ids(store, 9, key_slots=2) == ["c", "d", "e"]


@pytest.mark.parametrize("slots", [None, 9])
def test_without_a_limit_per_key_tasks_with_and_without_a_key_are_claimed_in_one_order(
    store: Store, slots: int | None
) -> None:
    now = store.now()
    for n, key in enumerate(("ann", "", "bob", "", "", "ann", "")):
        put(store, f"t{n}", limit_key=key, run_at=now - (9 - n) * SECOND)
    put(store, "urgent", limit_key="zoe", priority=-1)
    assert [task.task_id for task in store.due("videos", "script", store.now(), 4)] == ["urgent", "t0", "t1", "t2"]
    assert claimed_ids(store, 3, slots=slots) == ["urgent", "t0", "t1"]
    assert claimed_ids(store, 3, slots=slots) == ["t2", "t3", "t4"]
    assert claimed_ids(store, 3, slots=slots) == ["t5", "t6"]


def test_a_task_without_a_key_does_not_overtake_an_earlier_task_of_a_free_key(store: Store) -> None:
    now = store.now()
    store.insert([new(store, f"a{n:03d}", limit_key="ann", run_at=now - HOUR) for n in range(600)])
    put(store, "b", limit_key="bob", run_at=now - MINUTE)
    put_many(store, 5)
    assert claimed_ids(store, 1, key_slots=1) == ["a000"]
    assert claimed_ids(store, 2, key_slots=1) == ["b", "t0000"]


def test_the_most_urgent_of_very_many_keys_is_claimed_first(store: Store) -> None:
    store.insert([new(store, f"t{n:04d}", limit_key=f"user{n:04d}") for n in range(2_500)])
    put(store, "urgent", limit_key="zoe", priority=-10)
    assert claimed_ids(store, 2, key_slots=1) == ["urgent", "t0000"]


def test_the_total_limit_of_a_claim_holds_when_full_keys_come_first(store: Store) -> None:
    for phase in ("script", "video"):
        store.insert([new(store, f"{phase}{n:03d}", phase=phase, limit_key="ann") for n in range(200)])
        assert len(claim(store, 1, phase=phase, key_slots=1)) == 1
        for n in range(5):
            put(store, f"{phase}-b{n}", phase=phase, limit_key=f"bob{n}", priority=5)
    wants = [want(4, "script", key_slots=1), want(4, "video", key_slots=1)]
    first = [task.task_id for task in store.claim(Claim("w1", wants, limit=5))]
    assert first == [*(f"script-b{n}" for n in range(4)), "video-b0"]


def test_all_keys_behind_a_full_key_are_claimed_eventually(store: Store) -> None:
    store.insert([new(store, f"a{n:03d}", limit_key="ann", priority=-1) for n in range(300)])
    store.insert([new(store, f"t{n:04d}", limit_key=f"user{n:04d}") for n in range(1_200)])
    assert claimed_ids(store, 1, key_slots=1) == ["a000"]
    found: list[str] = []
    while tasks := claimed_ids(store, 100, key_slots=1):
        found += tasks
    assert sorted(found) == [f"t{n:04d}" for n in range(1_200)]


def test_all_priorities_of_a_key_are_scanned(store: Store) -> None:
    """This holds even if the scan of a claim ends inside the key: here at row 200."""
    store.insert([new(store, f"a{n:03d}", limit_key="ann", priority=-1) for n in range(300)])
    store.insert([new(store, f"u{n:03d}{twin}", limit_key=f"u{n:03d}") for n in range(198) for twin in "ab"])
    while claim(store, 300, key_slots=1):
        pass  # until each key is full
    put(store, "not yet", limit_key="v", run_at=store.now() + HOUR)
    put(store, "late", limit_key="v", priority=5)
    assert [task_id for _ in range(3) for task_id in claimed_ids(store, 5, key_slots=1)] == ["late"]


def test_the_limits_per_phase_and_per_key_hold_together(store: Store) -> None:
    for n in range(4):
        put(store, f"a{n}", limit_key="ann")
    for n in range(4):
        put(store, f"b{n}", limit_key="bob")
    tasks = claim(store, slots=3, key_slots=2)
    assert [(task.task_id, task.slot, task.key_slot) for task in tasks] == [("a0", 0, 0), ("a1", 1, 1), ("b0", 2, 0)]
    done(store, tasks[0])
    assert claimed_ids(store, slots=3, key_slots=2) == ["a2"]
    assert claim(store, slots=3, key_slots=2) == []


def test_a_lowered_limit_per_key_applies_after_the_running_tasks_end(store: Store) -> None:
    for n in range(6):
        put(store, f"a{n}", limit_key="ann")
    running = claim(store, key_slots=3)
    assert claim(store, key_slots=1) == []
    done(store, *running[:2])
    assert claim(store, key_slots=1) == []
    done(store, running[2])
    assert [task.key_slot for task in claim(store, key_slots=1)] == [0]


running = st.tuples(st.sampled_from(["", "a", "b"]), st.none() | st.integers(0, 5), st.none() | st.integers(0, 3))


@given(
    held=st.lists(running, max_size=6, unique_by=lambda each: each[1] if each[1] is not None else object()),
    slots=st.none() | st.integers(0, 6),
    key_slots=st.none() | st.integers(0, 3),
    waiting=st.lists(st.sampled_from(["", "a", "b"]), max_size=8),
)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_claim_takes_the_slots_that_the_rule_names(
    store: Store,
    held: list[tuple[str, int | None, int | None]],
    slots: int | None,
    key_slots: int | None,
    waiting: list[str],
) -> None:
    """PostgreSQL computes the free slots in SQL; the others call the rule."""
    pipeline = new_name("p")
    by_key = {(key, key_slot): (key, slot, key_slot) for key, slot, key_slot in held if key_slot is not None}
    kept = [*by_key.values(), *(each for each in held if each[2] is None)]
    now = store.now()
    lease = {"status": PROCESSING, "leased_by": "w0", "leased_until": now + HOUR, "started_at": now, "attempt": 1}
    for nth, (key, slot, key_slot) in enumerate(kept):
        put(store, f"{pipeline}-0-{nth}", pipeline=pipeline, limit_key=key, slot=slot, key_slot=key_slot, **lease)
    for nth, key in enumerate(waiting):
        put(store, f"{pipeline}-1-{nth}", pipeline=pipeline, limit_key=key)
    free = PhaseSlots(slots, key_slots, kept)
    expected = [(f"{pipeline}-1-{nth}", *taken) for nth, key in enumerate(waiting) if (taken := free.take(key))]
    claimed = claim(store, pipeline=pipeline, slots=slots, key_slots=key_slots)
    assert [(task.task_id, task.slot, task.key_slot) for task in claimed] == expected
