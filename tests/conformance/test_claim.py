"""Claiming: due tasks in order, within the limits, each to one worker."""

import time
from collections.abc import Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace

from onerow.core import rules
from onerow.core.status import PROCESSING, WAITING
from onerow.core.task import Task
from onerow.ports import Claim, Filter, Move, Store
from tests.conformance.kit import (
    BLINK,
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
from tests.conformance.stores import Place
from tests.samples import BROKEN, PLAN, SECOND


def done(store: Store, *tasks: Task) -> None:
    """Completed, so that their slots are free."""
    for task in tasks:
        swap(store, task, rules.complete(task, None, store.now()))


def completing(store: Store, held: Task) -> Move:
    return Move(held, rules.complete(held, None, store.now()))


def test_a_claim_makes_the_task_ours_as_the_rule_says(store: Store) -> None:
    task = put(store, payload={"topic": "tides"})
    before = store.now()
    held = claim_one(store, worker="w7")
    assert stored(store) == held
    assert before <= (held.started_at or before) <= store.now()
    assert held.started_at is not None
    assert held == rules.claimed(task, "w7", held.started_at + MINUTE, held.started_at, None, None)
    assert (held.status, held.token, held.attempt, held.version) == (PROCESSING, 1, 1, task.version + 1)


def test_a_claim_tells_all_of_a_task_whatever_is_unusual_about_it(store: Store) -> None:
    now = store.now()
    unusual = {
        "user_id": "김", "title": "조석 🌊 \"tides\" \\ 'and' more", "parent_id": "p1", "scheduled_time": now,
        "elapsed_time": 7, "priority": -3, "cancel_requested": True, "attempt": 2, "retry_count": 2, "max_retries": 9,
        "own_retries": True, "retry_base": 1, "crash_count": 1, "generation": 4, "error": "it said: \"no\"\n\t— 안 돼",
        "error_class": "network", "token": 2**40, "version": 2**40, "limit_key": "k'1", "unique_key": "u", "unique_for": "1h",
        "held_key": "u", "held_until": now, "children": 2, "payload_json": '"x"', "results_json": '{"a":1}',
        "steps_json": '{"s":{"result":"\\n"}}', "signals_json": '[{"name":"go"}]', "progress_json": "0.5",
        "metadata_json": '{"메모":"\\u0001"}', "logs_json": '[{"at":"2026-11-15T02:29:57.123Z","what":"retried"}]',
    }  # fmt: skip
    for field, value in unusual.items():
        put(store, field, **{field: value})
    put(store, "all", **unusual)
    held = {task.task_id: task for task in claim(store, 100)}
    assert held.keys() == {*unusual, "all"}
    assert {task.task_id: task for task in store.fetch([*held])} == held
    for name, task in held.items():
        told = {field: getattr(task, field) for field in unusual}
        grown = {"attempt": 1, "token": 1, "version": 1}
        for field, value in unusual.items():
            if name in (field, "all"):
                assert told[field] == (value + grown[field] if field in grown else value)  # type: ignore[operator]


def test_p2_a_task_that_is_ours_is_nobody_else_s(store: Store, again: Callable[[], Store]) -> None:
    put_many(store, 3)
    first = claimed_ids(store, 2, worker="w1")
    assert claimed_ids(again(), 10, worker="w2") == ["t0002"]
    assert claimed_ids(store, 10, worker="w1") == []
    assert first == ["t0000", "t0001"]


def test_tasks_come_by_priority_then_due_time_then_id(store: Store) -> None:
    now = store.now()
    for task_id, priority, ago in [
        ("f", 5, 9), ("b", 0, 2), ("c", 0, 1), ("e", 0, 0), ("d", 0, 0), ("a", -100, 0), ("g", 100, 50),
    ]:  # fmt: skip
        put(store, task_id, priority=priority, run_at=now - ago * SECOND)
    assert claimed_ids(store, 3) == ["a", "b", "c"]
    assert claimed_ids(store, 10) == ["d", "e", "f", "g"]


def test_p8_nothing_is_claimed_before_it_is_due(store: Store, later: Callable[[timedelta], None]) -> None:
    put(store, "soon", run_at=store.now() + BLINK, priority=-100)
    put(store, "far", run_at=store.now() + HOUR, priority=-50)
    put(store, "now")
    assert claimed_ids(store) == ["now"]
    later(BLINK)
    assert claimed_ids(store) == ["soon"]
    assert stored(store, "far").status is WAITING


def test_parked_and_ended_tasks_and_tombstones_are_not_claimed(store: Store) -> None:
    put(store, "parked", awaiting="signal:go")
    for end in ("cancelled", "buried"):
        task = put(store, end)
        task = swap(store, task, rules.cancel(task, store.now()))
        if end == "buried":
            swap(store, task, rules.bury(task, store.now()))
    assert claimed_ids(store) == []


def test_only_the_phase_and_pipeline_that_are_wanted(store: Store) -> None:
    put(store, "a")
    put(store, "b", phase="video")
    put(store, "c", pipeline="posts")
    assert claimed_ids(store, phase="video") == ["b"]
    assert claimed_ids(store, pipeline="posts") == ["c"]
    assert claimed_ids(store, pipeline="nobody") == []


def test_several_wants_are_served_each_by_its_own_terms(store: Store) -> None:
    for n in range(3):
        put(store, f"s{n}")
        put(store, f"v{n}", phase="video")
    tasks = store.claim(Claim("w1", [want(2), want(1, "video", lease_for=HOUR), want(5, "nothing")]))
    assert [task.task_id for task in tasks] == ["s0", "s1", "v0"]
    spans = [task.leased_until - task.started_at for task in tasks if task.leased_until and task.started_at]
    assert spans == [MINUTE, MINUTE, HOUR]


def test_all_wants_together_may_be_bounded(store: Store) -> None:
    for n in range(3):
        put(store, f"s{n}")
        put(store, f"v{n}", phase="video")
    wants = [want(2), want(5, "video")]
    assert [task.task_id for task in store.claim(Claim("w1", wants, limit=3))] == ["s0", "s1", "v0"]
    assert store.claim(Claim("w1", wants, limit=0)) == []
    assert [task.task_id for task in store.claim(Claim("w1", wants, limit=1))] == ["s2"]


def test_nothing_wanted_is_nothing_claimed(store: Store) -> None:
    put(store)
    assert store.claim(Claim("w1", [])) == []
    assert claimed_ids(store, 0) == []
    assert claimed_ids(store, ids=[]) == []


def test_named_tasks_are_claimed_if_they_could_be_at_all(store: Store) -> None:
    put(store, "a")
    put(store, "b")
    put(store, "c", priority=-5)
    put(store, "later", run_at=store.now() + HOUR)
    put(store, "parked", awaiting="signal:go")
    put(store, "elsewhere", phase="video")
    ids = ["b", "later", "parked", "elsewhere", "nobody", "c"]
    assert claimed_ids(store, ids=ids) == ["c", "b"]
    assert claimed_ids(store, ids=ids) == []
    assert claimed_ids(store) == ["a"]


def test_named_tasks_obey_the_limits_too(store: Store) -> None:
    put_many(store, 3)
    ids = ["t0002", "t0001", "t0000"]
    assert claimed_ids(store, ids=ids, slots=1) == ["t0000"]
    assert claimed_ids(store, ids=ids, slots=1) == []
    assert claimed_ids(store, 1, ids=ids) == ["t0001"]
    put(store, "k1", phase="video", limit_key="ann")
    put(store, "k2", phase="video", limit_key="ann")
    assert claimed_ids(store, phase="video", ids=["k2", "k1"], key_slots=1) == ["k1"]


# ── limits ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_p7_no_more_run_at_once_than_the_limit_allows(store: Store, again: Callable[[], Store]) -> None:
    put_many(store, 5)
    first = claim(store, slots=2)
    assert [task.slot for task in first] == [0, 1]
    assert claim(again(), slots=2, worker="w2") == []
    done(store, first[0])
    (second,) = claim(again(), slots=2, worker="w2")
    assert (second.task_id, second.slot) == ("t0002", 0)
    assert claim(store, slots=2) == []
    assert {task.slot for task in every_row(store).values() if task.status is PROCESSING} == {0, 1}


def test_a_slot_is_free_as_soon_as_its_task_stops_processing_however_it_does(store: Store) -> None:
    put(store)
    now = store.now()
    leaving: list[Callable[[Task], Task]] = [
        lambda task: rules.snooze(task, timedelta(0), now),
        lambda task: rules.hand_back(task, now),
        lambda task: rules.park(rules.signal(task, "x", "1", "s", now), "signal:x", None, now),
        lambda task: rules.rescue(task, now),
        lambda task: replace(rules.fail(task, BROKEN, PLAN, now), run_at=now),
        lambda task: rules.complete(task, None, now),
    ]
    for leave in leaving:
        held = claim_one(store, slots=1, key_slots=1)
        assert held.slot == 0
        after = leave(held)
        after = swap(store, held, replace(after, version=held.version + 1))
        assert (after.slot, after.key_slot, stored(store).slot) == (None, None, None)


def test_a_slot_belongs_to_one_phase_of_one_pipeline(store: Store) -> None:
    put(store, "a")
    put(store, "b", phase="video")
    put(store, "c", pipeline="posts")
    for pipeline, phase in (("videos", "script"), ("videos", "video"), ("posts", "script")):
        (task,) = claim(store, pipeline=pipeline, phase=phase, slots=1)
        assert task.slot == 0


def test_after_a_limit_was_lowered_the_running_finish_and_then_it_holds(store: Store) -> None:
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


def test_after_a_limit_was_raised_there_is_room_for_more(store: Store) -> None:
    put_many(store, 5)
    assert len(claim(store, slots=1)) == 1
    assert [task.slot for task in claim(store, slots=3)] == [1, 2]


def test_a_limit_counts_those_that_run_without_a_slot(store: Store) -> None:
    put_many(store, 4)
    assert [task.slot for task in claim(store, 2)] == [None, None]
    assert claim(store, slots=2) == []
    assert len(claim(store, slots=3)) == 1


def test_a_limit_per_key_counts_those_that_run_without_a_slot(store: Store) -> None:
    for n in range(4):
        put(store, f"a{n}", limit_key="ann")
    put(store, "b", limit_key="bob")
    assert [task.key_slot for task in claim(store, 2)] == [None, None]
    assert claimed_ids(store, key_slots=2) == ["b"]
    assert claimed_ids(store, key_slots=2, ids=["a2", "a3"]) == []
    assert claimed_ids(store, key_slots=3) == ["a2"]


def test_a_limit_of_none_at_all_lets_nothing_start(store: Store) -> None:
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


def test_keys_that_are_full_don_t_hide_those_that_are_not(store: Store) -> None:
    """However many tasks of a full key stand in front, the others are found."""
    store.insert([new(store, f"a{n:03d}", limit_key="ann", priority=-5) for n in range(600)])
    put(store, "b", limit_key="bob", priority=7)
    put(store, "c")
    assert claimed_ids(store, 1, key_slots=1) == ["a000"]
    assert claimed_ids(store, 10, key_slots=1) == ["c", "b"]


def test_keyed_tasks_come_in_the_order_of_all(store: Store) -> None:
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
def test_where_keys_aren_t_limited_tasks_with_and_without_one_come_in_one_order(
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


def test_what_has_no_key_doesn_t_overtake_a_key_with_room_that_a_full_one_hides(store: Store) -> None:
    now = store.now()
    store.insert([new(store, f"a{n:03d}", limit_key="ann", run_at=now - HOUR) for n in range(600)])
    put(store, "b", limit_key="bob", run_at=now - MINUTE)
    put_many(store, 5)
    assert claimed_ids(store, 1, key_slots=1) == ["a000"]
    assert claimed_ids(store, 2, key_slots=1) == ["b", "t0000"]


def test_the_first_of_very_many_keys_is_still_the_first(store: Store) -> None:
    store.insert([new(store, f"t{n:04d}", limit_key=f"user{n:04d}") for n in range(2_500)])
    put(store, "urgent", limit_key="zoe", priority=-10)
    assert claimed_ids(store, 2, key_slots=1) == ["urgent", "t0000"]


def test_when_full_keys_stand_in_front_all_wants_together_still_keep_their_bound(store: Store) -> None:
    for phase in ("script", "video"):
        store.insert([new(store, f"{phase}{n:03d}", phase=phase, limit_key="ann") for n in range(200)])
        assert len(claim(store, 1, phase=phase, key_slots=1)) == 1
        for n in range(5):
            put(store, f"{phase}-b{n}", phase=phase, limit_key=f"bob{n}", priority=5)
    wants = [want(4, "script", key_slots=1), want(4, "video", key_slots=1)]
    first = [task.task_id for task in store.claim(Claim("w1", wants, limit=5))]
    assert first == [*(f"script-b{n}" for n in range(4)), "video-b0"]


def test_keys_behind_a_full_one_all_have_their_turn(store: Store) -> None:
    store.insert([new(store, f"a{n:03d}", limit_key="ann", priority=-1) for n in range(300)])
    store.insert([new(store, f"t{n:04d}", limit_key=f"user{n:04d}") for n in range(1_200)])
    assert claimed_ids(store, 1, key_slots=1) == ["a000"]
    found: list[str] = []
    while tasks := claimed_ids(store, 100, key_slots=1):
        found += tasks
    assert sorted(found) == [f"t{n:04d}" for n in range(1_200)]


def test_both_limits_hold_together(store: Store) -> None:
    for n in range(4):
        put(store, f"a{n}", limit_key="ann")
    for n in range(4):
        put(store, f"b{n}", limit_key="bob")
    tasks = claim(store, slots=3, key_slots=2)
    assert [(task.task_id, task.slot, task.key_slot) for task in tasks] == [("a0", 0, 0), ("a1", 1, 1), ("b0", 2, 0)]
    done(store, tasks[0])
    assert claimed_ids(store, slots=3, key_slots=2) == ["a2"]
    assert claim(store, slots=3, key_slots=2) == []


def test_after_a_limit_per_key_was_lowered_the_running_finish_and_then_it_holds(store: Store) -> None:
    for n in range(6):
        put(store, f"a{n}", limit_key="ann")
    running = claim(store, key_slots=3)
    assert claim(store, key_slots=1) == []
    done(store, *running[:2])
    assert claim(store, key_slots=1) == []
    done(store, running[2])
    assert [task.key_slot for task in claim(store, key_slots=1)] == [0]


# ── turns ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_turn_swaps_and_then_claims_so_that_what_was_freed_is_taken(store: Store) -> None:
    put_many(store, 2)
    held = claim_one(store, slots=1)
    answers, tasks = store.turn([completing(store, held)], Claim("w1", [want(5, slots=1)]))
    assert [type(answer).__name__ for answer in answers] == ["Swapped"]
    assert [(task.task_id, task.slot) for task in tasks] == [("t0001", 0)]


def test_a_turn_may_be_only_one_of_both(store: Store) -> None:
    put_many(store, 2)
    held = claim_one(store)
    answers, tasks = store.turn([completing(store, held)], None)
    assert (len(answers), tasks) == (1, [])
    answers, tasks = store.turn([], Claim("w1", [want(5)]))
    assert (answers, len(tasks)) == ([], 1)
    assert store.turn([], None) == ([], [])


def test_a_task_that_advances_may_be_claimed_in_the_same_turn(store: Store) -> None:
    put(store, phase="video")
    held = claim_one(store, phase="video")
    moved = rules.advance(held, PLAN, '"v.mp4"', store.now())
    _, tasks = store.turn([Move(held, moved)], Claim("w1", [want(5, "youtube")]))
    assert [(task.task_id, task.phase, task.attempt, task.token) for task in tasks] == [("t1", "youtube", 1, 2)]


def test_p14_a_claim_costs_the_same_whatever_stands_in_front(place: Place) -> None:
    """A bound so wide that only a walk over all those rows breaks it; figures are the benchmark's."""
    if not place.entry.scales:
        pytest.skip("this store declares that it doesn't scale")
    store = place.store

    def fastest() -> float:
        seen = []
        for _ in range(12):
            began = time.perf_counter()
            held = claim_one(store)
            seen.append(time.perf_counter() - began)
            swap(store, held, rules.hand_back(held, store.now(), started=False))
        return min(seen)

    put(store, "due")
    alone = fastest()
    ahead = store.now() + HOUR
    store.insert([new(store, f"n{n:05d}", priority=-5, run_at=ahead) for n in range(20_000)])
    store.insert([new(store, f"p{n:05d}", priority=5) for n in range(5_000)])
    assert fastest() < 5 * alone + 0.001
    assert sum(tally.count for tally in store.count(Filter())) == 25_001
