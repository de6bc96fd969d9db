"""Records of a phase: steps, taken signals, and waits with their deadlines."""

from datetime import timedelta

import pytest

from onerow.core import rules, steps
from onerow.core.errors import BadInput, BadPayload, IllegalMove
from onerow.core.plan import PhasePlan, Plan
from onerow.core.rules import checkpoints
from onerow.core.status import CANCELLED, COMPLETED, FAILED, PROCESSING, WAITING, Status
from onerow.core.times import FAR
from tests.samples import HOPELESS, NOW, SECOND, a_task, claimed

DAY = timedelta(days=1)
PLAN = Plan(name="videos", phases=(PhasePlan(name="script"), PhasePlan(name="video")))


def test_a_step_is_stored_under_its_phase() -> None:
    task = checkpoints.remember(claimed(a_task()), "download", '{"file":"a"}', NOW)
    assert task.steps == {"script": {"download": {"at": "2026-11-15T02:29:57.123Z", "result": {"file": "a"}}}}
    assert steps.records(task)["download"].value == {"file": "a"}
    later = claimed(rules.complete(task, PLAN, None, NOW))
    assert (steps.records(later), list(later.steps)) == ({}, ["script"])


def test_the_records_of_a_renamed_phase_follow_its_name() -> None:
    plan = Plan(name="videos", phases=(PhasePlan(name="text", renamed_from=("script",)), PhasePlan(name="video")))
    task = rules.wait(claimed(a_task()), "wait:go", "signal:go", DAY, NOW)
    moved = rules.rename(task, plan, NOW)
    assert (moved.phase, moved.awaiting, moved.run_at) == ("text", "signal:go", NOW + DAY)
    assert steps.records(moved) == steps.records(task) != {}


def test_a_renamed_wait_phase_with_another_signal_waits_for_that_one() -> None:
    wait = PhasePlan(name="review", kind="wait_for", signal="reviewed", renamed_from=("approval",))
    plan = Plan(name="videos", phases=(wait, PhasePlan(name="video")))
    task = a_task(phase="approval", awaiting="signal:approved", run_at=NOW + DAY)
    moved = rules.rename(task, plan, NOW)
    assert (moved.phase, moved.awaiting, moved.run_at) == ("review", "signal:reviewed", NOW + DAY)
    signalled = rules.signal(task, "reviewed", '"yes"', "s1", NOW)
    moved = rules.rename(signalled, plan, NOW)
    assert (moved.awaiting, moved.run_at) == (None, NOW)
    assert rules.pass_(moved, plan, NOW).results == {"review": "yes"}


def test_the_deadline_of_a_wait_counts_from_its_first_start() -> None:
    first = rules.wait(claimed(a_task()), "wait:go", "signal:go", DAY, NOW)
    assert (first.status, first.awaiting, first.run_at) == (WAITING, "signal:go", NOW + DAY)
    woken = rules.expire(first.with_changes(NOW, run_at=NOW), PLAN, NOW)
    again = rules.wait(claimed(woken), "wait:other", "signal:other", None, NOW)
    assert again.run_at == FAR
    reached = rules.wait(
        claimed(first.with_changes(NOW, awaiting=None, run_at=NOW)), "wait:go", "signal:go", DAY, NOW + SECOND
    )
    assert reached.run_at == NOW + DAY


def test_a_wait_past_its_deadline_is_recorded_as_expired() -> None:
    task = rules.wait(claimed(a_task()), "wait:go", "signal:go", SECOND, NOW)
    woken = rules.expire(task, PLAN, NOW + SECOND)
    assert (woken.status, woken.awaiting, woken.run_at) == (WAITING, None, NOW + SECOND)
    assert steps.records(woken)["wait:go"].expired


def test_a_signal_is_taken_once() -> None:
    task = rules.signal(claimed(a_task()), "go", "1", "s1", NOW)
    task = rules.signal(task, "go", "2", "s2", NOW)
    taken = checkpoints.take_signal(task, "wait:go", "go", NOW)
    assert taken is not None
    assert taken.status is PROCESSING
    assert (steps.records(taken)["wait:go"].value, [s["payload"] for s in taken.signals]) == (1, [2])
    assert checkpoints.take_signal(taken, "wait:go", "go", NOW) is None
    assert checkpoints.take_signal(claimed(a_task()), "wait:go", "go", NOW) is None


def test_a_signal_between_the_check_and_the_park_is_not_lost() -> None:
    task = rules.signal(claimed(a_task()), "go", "1", "s1", NOW)
    parked = rules.wait(task, "wait:go", "signal:go", None, NOW)
    assert (parked.status, parked.awaiting, parked.run_at) == (WAITING, None, NOW)


def test_the_number_and_size_of_steps_are_limited() -> None:
    task = claimed(a_task())
    for number in range(steps.MAX_STEPS):
        task = checkpoints.remember(task, f"s{number}", "1", NOW)
    with pytest.raises(BadPayload, match="more than 1,000 steps"):
        checkpoints.remember(task, "one more", "1", NOW)
    big = claimed(a_task())
    long = '"' + "x" * 999_000 + '"'
    for number in range(8):
        big = checkpoints.remember(big, f"s{number}", long, NOW)
    with pytest.raises(BadPayload, match=r"would make the row [\d,]+ characters, at most 8,000,000 are stored"):
        checkpoints.remember(big, "s8", long, NOW)


@pytest.mark.parametrize("name", ["", "wait:go", "spawn:parts", "join"])
def test_reserved_step_names_are_rejected(name: str) -> None:
    with pytest.raises(BadInput):
        steps.check_name(name)


@pytest.mark.parametrize(
    "counts, ready",
    [
        ({}, False),
        ({COMPLETED: 2}, False),  # the count missed a child
        ({COMPLETED: 2, PROCESSING: 1}, False),
        ({COMPLETED: 1, FAILED: 1, CANCELLED: 1}, True),
        ({COMPLETED: 3, WAITING: 1}, False),  # spawned by an attempt that did not finish its spawn
    ],
)
def test_a_parent_is_ready_when_all_its_spawned_children_have_ended(counts: dict[Status, int], ready: bool) -> None:
    plan = Plan(name="videos", phases=(PhasePlan(name="gathered", kind="wait_children", timeout=None),))
    parent = a_task(phase="gathered", awaiting="children", children=3)
    assert rules.children_ended(parent, counts) is ready
    if ready:
        assert rules.gather(parent, plan, counts, NOW).status is COMPLETED
    else:
        with pytest.raises(IllegalMove):
            rules.gather(parent, plan, counts, NOW)


def test_a_spawn_whose_answer_was_lost_counts_once() -> None:
    begun = checkpoints.spawning(claimed(a_task()), "spawn:parts", NOW)
    assert begun is not None
    once = checkpoints.spawned(begun, "spawn:parts", 5, NOW)
    assert checkpoints.spawned(once, "spawn:parts", 5, NOW).children == once.children == 5
    assert checkpoints.spawned(once, "spawn:more", 2, NOW).children == 7


def test_a_retried_or_replayed_parent_expects_only_the_remaining_children() -> None:
    """The children of an ended task may have been purged."""
    begun = checkpoints.spawning(claimed(a_task()), "spawn:parts", NOW)
    assert begun is not None
    failed = rules.fail(checkpoints.spawned(begun, "spawn:parts", 5, NOW), HOPELESS, PLAN, NOW)
    assert failed.children == 5
    assert rules.retry(failed, PLAN, NOW).children == 0
    assert rules.replay(failed, PLAN, "script", NOW).children is None
