"""Swaps: a move is written only if the row's version is unchanged, and every row gets an answer."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace

from onerow.core import rules, values
from onerow.core.failure import failure
from onerow.core.status import CANCELLED, COMPLETED, ENDS, FAILED, PROCESSING, WAITING
from onerow.core.task import Task
from onerow.engine.events.events import Events
from onerow.engine.queue.children import Children
from onerow.ports import Conflict, Existing, Held, Lease, Lost, Move, Stale, Store, Swapped
from tests.conformance.kit import (
    BLINK,
    HOUR,
    MINUTE,
    claim,
    claim_one,
    claimed_ids,
    new,
    put,
    put_many,
    same,
    stored,
    swap,
)
from tests.samples import BROKEN, HOPELESS, PLAN, SECOND


def completing(store: Store, held: Task, result: str = '"done"') -> Move:
    return Move(held, rules.finish(held, result, store.now()))


def test_a_move_is_written_and_the_answer_contains_the_stored_task(store: Store) -> None:
    held = put_and_claim(store)
    after = rules.complete(held, PLAN, '{"text":"조수"}', store.now())
    (answer,) = store.swap([Move(held, after)])
    assert answer == Swapped(after)
    assert same(stored(store), after)
    assert stored(store).version == held.version + 1


def put_and_claim(store: Store, task_id: str = "t1", **more: object) -> Task:
    put(store, task_id, **more)
    return claim_one(store, ids=[task_id])


def test_a_move_from_an_old_version_is_stale_and_changes_nothing(store: Store) -> None:
    held = put_and_claim(store)
    signalled = swap(store, held, rules.signal(held, "x", "1", "s", store.now()))
    assert store.swap([completing(store, held)]) == [Stale("t1")]
    assert stored(store) == signalled


def test_a_move_of_a_deleted_row_is_stale(store: Store) -> None:
    held = put_and_claim(store)
    assert store.remove([held]) == 1
    assert store.swap([completing(store, held)]) == [Stale("t1")]
    assert store.fetch(["t1"]) == []


def test_an_empty_swap_returns_no_answers(store: Store) -> None:
    assert store.swap([]) == []


def test_a_move_made_by_two_rules_is_written_once(store: Store) -> None:
    task = put(store)
    after = rules.set_priority(rules.signal(task, "x", "1", "s", store.now()), -5, store.now())
    (answer,) = store.swap([Move(task, after)])
    assert isinstance(answer, Swapped)
    assert answer.task == stored(store)
    assert (answer.task.priority, len(answer.task.signals)) == (-5, 1)
    assert swap(store, answer.task, rules.cancel(answer.task, store.now())).status is CANCELLED


def test_a_move_that_changes_nothing_is_answered_with_the_stored_task(store: Store) -> None:
    held = put_and_claim(store)
    cancelled = swap(store, held, rules.cancel(held, store.now()))
    assert rules.cancel(cancelled, store.now()) is cancelled
    (answer,) = store.swap([Move(cancelled, cancelled)])
    assert answer == Swapped(stored(store))


def test_a_batch_swap_answers_for_each_row(store: Store) -> None:
    put_many(store, 6)
    held = claim(store, 4)
    stale = swap(store, held[1], rules.cancel(held[1], store.now()))
    assert store.remove([held[2]]) == 1
    failed = put(store, "failed", unique="k")
    failed = swap(store, failed, rules.cancel(failed, store.now()))
    other = put(store, "other", unique="k")
    conflicting = Move(failed, failed.with_changes(store.now(), held_key="k"))
    waiting = stored(store, "t0004")
    answers = store.swap(
        [
            completing(store, held[0]),
            completing(store, held[1]),
            conflicting,
            completing(store, held[2]),
            Move(waiting, rules.cancel(waiting, store.now())),
            completing(store, held[3]),
        ]
    )
    assert [type(answer) for answer in answers] == [Swapped, Stale, Conflict, Stale, Swapped, Swapped]
    assert answers[1] == Stale("t0001")
    assert answers[2] == Conflict("failed", "other")
    assert stored(store, "t0000").status is COMPLETED
    assert stored(store, "t0001") == stale
    assert stored(store, "failed") == failed
    assert stored(store, "other") == other
    assert stored(store, "t0004").status is CANCELLED
    assert stored(store, "t0003").result == "done"


def test_a_big_batch_of_similar_moves_is_written_completely(store: Store) -> None:
    put_many(store, 1_200)
    held = claim(store, 1_200)
    now = store.now()
    moves = [Move(task, rules.finish(task, values.encode(n), now)) for n, task in enumerate(held)]
    assert store.swap(moves) == [Swapped(move.after) for move in moves]
    assert [task.result for task in sorted(store.fetch([t.task_id for t in held]), key=lambda t: t.task_id)] == list(
        range(1_200)
    )


def test_one_stale_move_in_a_big_batch_does_not_affect_the_others(store: Store) -> None:
    put_many(store, 300)
    held = claim(store, 300)
    swap(store, held[123], rules.signal(held[123], "x", "1", "s", store.now()))
    answers = store.swap([completing(store, task) for task in held])
    assert [index for index, answer in enumerate(answers) if not isinstance(answer, Swapped)] == [123]
    assert stored(store, "t0123").status is PROCESSING
    assert {task.status for task in store.fetch([f"t{n:04d}" for n in range(300) if n != 123])} == {COMPLETED}


def test_only_changed_columns_are_written(store: Store) -> None:
    """A rule may get a task without its large columns; columns that it doesn't change are kept."""
    held = put_and_claim(store, payload={"big": "x" * 1000}, metadata_json='{"mine":1}', title="Tides")
    light = replace(held, payload_json="null", metadata_json="{}", title="")
    swap(store, light, rules.finish(light, '"done"', store.now()))
    found = stored(store)
    assert (found.status, found.title, found.metadata) == (COMPLETED, "Tides", {"mine": 1})
    assert found.payload == {"big": "x" * 1000}


def test_history_grows_with_each_attempt(store: Store, later: Callable[[timedelta], None]) -> None:
    put(store)
    for attempt in range(1, 4):
        held = claim_one(store)
        failed = rules.fail(held, BROKEN, PLAN, store.now(), by="w1")
        swap(store, held, replace(failed, run_at=store.now()))
        assert [entry.attempt for entry in stored(store).history] == list(range(1, attempt + 1))
    assert {entry.what for entry in stored(store).history} == {"failed"}


def test_p3_a_worker_that_lost_its_lease_changes_nothing(
    store: Store, again: Callable[[], Store], later: Callable[[timedelta], None]
) -> None:
    put(store)
    lost = claim_one(store, lease_for=BLINK)
    later(BLINK)
    rescued = swap(again(), lost, rules.rescue(lost, store.now(), by="w2"), if_dead=True)
    ours = claim_one(again(), worker="w2")
    assert (rescued.token, ours.token) == (lost.token + 1, lost.token + 2)
    for late in (
        rules.finish(lost, '"late"', store.now()),
        rules.fail(lost, HOPELESS, PLAN, store.now()),
        rules.hand_back(lost, store.now()),
        rules.report(lost, store.now(), progress="1"),
    ):
        assert store.swap([Move(lost, late)]) == [Stale("t1")]
    assert store.extend([Lease("t1", lost.token)], MINUTE) == [Lost("t1")]
    assert stored(store) == ours


def test_p4_a_finish_whose_answer_was_lost_is_recorded_once(store: Store) -> None:
    """After Stale: the task is not processing and has our token, so our first write succeeded."""
    held = claimed_at_video(store)
    move = Move(held, rules.complete(held, PLAN, '"v.mp4"', store.now()))
    store.swap([move])  # the answer is lost
    assert store.swap([move]) == [Stale("t1")]
    found = stored(store)
    assert (found.status, found.token, found.phase) == (WAITING, held.token, "youtube")
    assert [entry.what for entry in found.history] == ["advanced"]


def claimed_at_video(store: Store) -> Task:
    put(store, phase="video")
    return claim_one(store, phase="video")


def test_the_token_shows_a_lost_answer_even_after_another_claim(store: Store) -> None:
    held = claimed_at_video(store)
    move = Move(held, rules.complete(held, PLAN, '"v.mp4"', store.now()))
    store.swap([move])
    theirs = claim_one(store, worker="w2", phase="youtube")
    assert store.swap([move]) == [Stale("t1")]
    assert stored(store) == theirs
    assert stored(store).token == held.token + 1  # another worker's claim


def test_a_concurrent_heartbeat_makes_a_finish_stale_but_keeps_the_lease(store: Store) -> None:
    held = put_and_claim(store)
    (beat,) = store.extend([Lease("t1", held.token)], MINUTE)
    assert isinstance(beat, Held)
    assert store.swap([completing(store, held)]) == [Stale("t1")]
    found = stored(store)
    assert (found.status, found.token, found.version) == (PROCESSING, held.token, beat.version)
    assert swap(store, found, rules.finish(found, None, store.now())).status is COMPLETED


def test_a_finish_may_start_from_the_version_that_a_heartbeat_returned(store: Store) -> None:
    held = put_and_claim(store)
    (beat,) = store.extend([Lease("t1", held.token)], MINUTE)
    assert isinstance(beat, Held)
    current = replace(held, version=beat.version, leased_until=beat.leased_until)
    assert swap(store, current, rules.finish(current, None, store.now())).status is COMPLETED
    assert stored(store).leased_until is None


# ── keys ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("rule", [rules.retry, lambda task, plan, now: rules.replay(task, plan, None, now)])
def test_a_task_whose_key_another_task_holds_can_t_be_retried_or_replayed(
    store: Store, rule: Callable[[Task, object, object], Task]
) -> None:
    held = put_and_claim(store, "a", unique="k")
    failed = swap(store, held, rules.fail(held, HOPELESS, PLAN, store.now()))
    put(store, "b", unique="k")
    assert store.swap([Move(failed, rule(failed, PLAN, store.now()))]) == [Conflict("a", "b")]
    assert stored(store, "a") == failed
    other = stored(store, "b")
    swap(store, other, rules.cancel(other, store.now()))
    back = swap(store, failed, rule(failed, PLAN, store.now()))
    assert (back.status, back.held_key) == (WAITING, "k")


def test_a_stale_move_with_a_key_conflict_is_answered_as_stale(store: Store) -> None:
    held = put_and_claim(store, "a", unique="k")
    failed = swap(store, held, rules.fail(held, HOPELESS, PLAN, store.now()))
    put(store, "b", unique="k")
    old = replace(failed, version=failed.version - 1)
    assert store.swap([Move(old, rules.retry(old, PLAN, store.now()))]) == [Stale("a")]


# ── expired leases ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_live_lease_is_not_rescued(store: Store) -> None:
    held = put_and_claim(store)
    assert store.swap([Move(held, rules.rescue(held, store.now() + HOUR), if_dead=True)]) == [Stale("t1")]
    assert stored(store) == held


def test_p9_an_expired_lease_can_be_rescued_at_once(store: Store, later: Callable[[timedelta], None]) -> None:
    put(store)
    held = claim_one(store, lease_for=BLINK)
    later(BLINK)
    rescued = swap(store, held, rules.rescue(held, store.now(), by="w2"), if_dead=True)
    assert (rescued.status, rescued.rescue_count, rescued.crash_count, rescued.leased_by) == (WAITING, 1, 0, None)
    assert claimed_ids(store) == ["t1"]


def test_a_heartbeat_between_the_rescuer_s_read_and_write_is_not_lost(
    store: Store, later: Callable[[timedelta], None]
) -> None:
    put(store)
    held = claim_one(store, lease_for=BLINK)
    later(BLINK)
    seen_dead = stored(store)
    (beat,) = store.extend([Lease("t1", held.token)], MINUTE)
    assert isinstance(beat, Held)
    assert store.swap([Move(seen_dead, rules.rescue(seen_dead, store.now()), if_dead=True)]) == [Stale("t1")]
    now_alive = stored(store)
    assert store.swap([Move(now_alive, rules.rescue(now_alive, store.now()), if_dead=True)]) == [Stale("t1")]
    assert stored(store).status is PROCESSING


def test_live_and_expired_leases_in_one_batch_are_distinguished(
    store: Store, later: Callable[[timedelta], None]
) -> None:
    put_many(store, 3)
    dead = claim(store, 2, lease_for=BLINK)
    later(BLINK)
    alive = claim(store, 1)
    answers = store.swap([Move(task, rules.rescue(task, store.now()), if_dead=True) for task in [*alive, *dead]])
    assert [type(answer) for answer in answers] == [Stale, Swapped, Swapped]


def test_a_task_without_a_lease_is_not_rescued(store: Store) -> None:
    task = put(store)
    assert store.swap([Move(task, rules.cancel(task, store.now()), if_dead=True)]) == [Stale("t1")]


def test_p10_a_task_that_kills_its_own_process_ends_failed_and_its_neighbours_don_t(
    store: Store, later: Callable[[timedelta], None]
) -> None:
    put(store, "poison", priority=-1)
    put(store, "good")
    held = claim(store, 2, lease_for=BLINK)
    later(BLINK)
    for task in held:
        swap(store, task, rules.rescue(task, store.now()), if_dead=True)
    for _ in range(rules.CRASH_LIMIT):
        held = [claim_one(store, ids=["poison"])]
        swap(store, held[0], rules.crash(held[0], failure("killed", "crash"), store.now()))
    ended = stored(store, "poison")
    assert (ended.status, ended.error_class, ended.crash_count) == (FAILED, "crash", 3)
    (good,) = claim(store, 1)
    assert (good.task_id, good.rescue_count, good.crash_count, good.retry_count) == ("good", 1, 0, 0)


# ── order and ends ────────────────────────────────────────────────────────────────────────────────────────────────


def test_p5_phases_run_in_order_and_none_is_skipped(store: Store) -> None:
    task = put(store, phase="schedule")
    seen = [task.phase]
    while not task.ended:
        if task.awaiting is not None:
            after = rules.signal(task, "images.ready", '"a.png"', "s1", store.now())
        elif not PLAN.phase(task.phase).has_code:
            after = rules.pass_(task, PLAN, store.now())
        else:
            task = claim_one(store, phase=task.phase)
            after = rules.complete(task, PLAN, '"made"', store.now())
        task = swap(store, task, after)
        if task.phase != seen[-1]:
            seen.append(task.phase)
    assert seen == [phase.name for phase in PLAN.phases]
    assert stored(store).status is COMPLETED
    assert list(stored(store).results) == ["script", "image", "video", "youtube"]


@pytest.mark.parametrize("end", sorted(ENDS))
def test_p6_an_ended_task_rejects_late_writes(store: Store, end: str) -> None:
    held = put_and_claim(store)
    after = {
        "completed": rules.finish(held, "1", store.now()),
        "failed": rules.fail(held, HOPELESS, PLAN, store.now()),
        "cancelled": rules.stop_cancelled(held, store.now()),
    }[end]
    ended = swap(store, held, after)
    assert claimed_ids(store) == []
    assert store.extend([Lease("t1", held.token)], MINUTE) == [Lost("t1")]
    assert store.swap([completing(store, held)]) == [Stale("t1")]
    assert store.swap([Move(ended, ended.with_changes(store.now()), if_dead=True)]) == [Stale("t1")]
    assert stored(store) == ended


def test_a_cancel_written_first_wins_over_the_finish(store: Store) -> None:
    """The finish is stale, is decided again, and then ends cancelled."""
    held = put_and_claim(store)
    cancelled = swap(store, held, rules.cancel(held, store.now(), by="ann"))
    assert store.swap([completing(store, held)]) == [Stale("t1")]
    found = stored(store)
    assert found == cancelled
    assert (found.status, found.token) == (PROCESSING, held.token)
    ended = swap(store, found, rules.finish(found, '"done"', store.now()))
    assert (ended.status, ended.result) == (CANCELLED, "done")


# ── heartbeats ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_heartbeat_extends_the_lease_from_the_store_s_time(store: Store, later: Callable[[timedelta], None]) -> None:
    held = put_and_claim(store)
    later(BLINK)
    before = store.now()
    (beat,) = store.extend([Lease("t1", held.token)], HOUR)
    assert isinstance(beat, Held)
    assert before + HOUR <= beat.leased_until <= store.now() + HOUR
    found = stored(store)
    assert (found.leased_until, found.version, found.token) == (beat.leased_until, beat.version, held.token)
    assert found.version == held.version + 1
    assert beat.cancel_requested is False


def test_a_heartbeat_returns_a_cancel_request(store: Store) -> None:
    held = put_and_claim(store)
    cancelled = swap(store, held, rules.cancel(held, store.now()))
    (beat,) = store.extend([Lease("t1", held.token)], MINUTE)
    assert isinstance(beat, Held)
    assert (beat.cancel_requested, beat.version) == (True, cancelled.version + 1)


def test_an_expired_lease_that_was_not_rescued_can_be_extended(
    store: Store, later: Callable[[timedelta], None]
) -> None:
    put(store)
    held = claim_one(store, lease_for=BLINK)
    later(BLINK + SECOND / 100)
    (beat,) = store.extend([Lease("t1", held.token)], MINUTE)
    assert isinstance(beat, Held)
    assert beat.leased_until > store.now()


def test_a_batch_of_heartbeats_is_answered_in_order(store: Store) -> None:
    put_many(store, 5)
    held = claim(store, 4)
    ended = swap(store, held[1], rules.finish(held[1], None, store.now()))
    leases = [Lease(task.task_id, task.token) for task in held]
    leases += [Lease("t0004", 0), Lease("unknown", 1), Lease("t0000", 99)]
    answers = store.extend(list(reversed(leases)), MINUTE)
    assert [type(answer) for answer in answers] == [Lost, Lost, Lost, Held, Held, Lost, Held]
    assert [answer.task_id for answer in answers] == ["t0000", "unknown", "t0004", "t0003", "t0002", "t0001", "t0000"]
    assert stored(store, "t0001") == ended
    assert stored(store, "t0004").version == 1
    assert store.extend([], MINUTE) == []


def test_a_waiting_task_has_no_lease_to_extend(store: Store) -> None:
    held = put_and_claim(store)
    back = swap(store, held, rules.hand_back(held, store.now()))
    assert back.token == held.token
    assert store.extend([Lease("t1", held.token)], MINUTE) == [Lost("t1")]
    assert stored(store) == back


def test_cancelling_a_parent_reaches_grandchildren_without_a_worker(store: Store) -> None:
    put(store, "parent", children=1)
    put(store, "child", parent_id="parent", children=1)
    put(store, "grandchild", parent_id="child", children=1)
    put(store, "great-grandchild", parent_id="grandchild")
    Children(store, lambda _: PLAN, Events()).cancel_children("parent", store.now(), by="me")
    for task_id in ("child", "grandchild", "great-grandchild"):
        assert stored(store, task_id).status is CANCELLED, task_id
    assert stored(store, "parent").status is WAITING


def test_a_task_that_waits_for_a_retry_holds_its_unique_key(store: Store) -> None:
    put(store, "t1", unique="key")
    held = claim_one(store)
    waits = swap(store, held, rules.fail(held, BROKEN, PLAN, store.now()))
    assert (waits.status, waits.run_at > store.now()) == (WAITING, True)
    (answer,) = store.insert([new(store, "t2", unique="key")])
    assert isinstance(answer, Existing)
    assert answer.task.task_id == "t1"
