"""Retries, rescues, crashes and cancel requests: which tasks run again, when, and how often."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from onerow.core import rules
from onerow.core.errors import BadInput
from onerow.core.failure import ERROR_CLASSES, Failure, failure
from onerow.core.plan import PhasePlan, Plan
from onerow.core.retry import RETRIED, Retry
from onerow.core.status import CANCELLED, COMPLETED, FAILED, PROCESSING, WAITING
from onerow.core.task import Task
from tests.samples import BROKEN, HOPELESS, NOW, PLAN, SECOND, a_task, claimed, in_status

STEADY = Plan(name="videos", phases=(PhasePlan(name="script", retry=Retry(3, wait="5s", factor=3, jitter=0)),))


def failed_until_it_ends(task: Task, why: Failure, plan: Plan = STEADY) -> list[Task]:
    seen = []
    while not task.ended:
        task = rules.fail(claimed(task, max(task.run_at, NOW)), why, plan, max(task.run_at, NOW))
        seen.append(task)
    return seen


def test_a_task_has_one_attempt_more_than_max_retries() -> None:
    seen = failed_until_it_ends(a_task(max_retries=3), BROKEN)
    assert [task.status for task in seen] == [WAITING, WAITING, WAITING, FAILED]
    assert [task.retry_count for task in seen] == [1, 2, 3, 3]
    assert [task.attempt for task in seen] == [1, 2, 3, 4]
    assert seen[-1].error == BROKEN.message
    assert seen[-1].error_class == "network"
    assert [entry.what for entry in seen[-1].history] == ["failed"] * 4


def test_the_wait_grows_by_the_factor() -> None:
    seen = failed_until_it_ends(a_task(), BROKEN)
    assert [task.run_at - task.updated_at for task in seen[:3]] == [5 * SECOND, 15 * SECOND, 45 * SECOND]


def test_a_task_without_retries_fails_at_once() -> None:
    assert [task.status for task in failed_until_it_ends(a_task(max_retries=0), BROKEN)] == [FAILED]


@pytest.mark.parametrize("error_class", ERROR_CLASSES)
def test_the_error_class_decides_whether_a_task_is_retried(error_class: str) -> None:
    after = rules.fail(in_status(PROCESSING), Failure("x", error_class), STEADY, NOW)
    assert after.status == (WAITING if error_class in RETRIED else FAILED)
    assert after.error_class == error_class


def test_network_limit_resource_and_unknown_are_retried_and_timeout_auth_and_permanent_are_not() -> None:
    assert {"network", "limit", "resource", "unknown"} <= RETRIED
    assert not {"timeout", "auth", "permanent"} & RETRIED


@pytest.mark.parametrize("error_class", ERROR_CLASSES)
@pytest.mark.parametrize("again", [True, False])
def test_a_phase_can_override_which_classes_are_retried(error_class: str, again: bool) -> None:
    plan = Plan(name="videos", phases=(PhasePlan(name="script", retry=Retry(classes={error_class: again})),))
    after = rules.fail(in_status(PROCESSING), Failure("x", error_class), plan, NOW)
    assert after.status == (WAITING if again else FAILED)


def test_a_rate_limited_task_waits_for_the_given_time() -> None:
    after = rules.fail(in_status(PROCESSING), Failure("slow down", "limit", after=timedelta(hours=1)), STEADY, NOW)
    assert after.run_at == NOW + timedelta(hours=1)
    assert after.retry_count == 1


def test_max_retries_of_add_applies_to_every_phase() -> None:
    task = claimed(a_task(max_retries=7, own_retries=True))
    assert rules.complete(task, PLAN, None, NOW).max_retries == 7
    assert rules.finish_by_hand(rules.hand_back(task, NOW), PLAN, NOW, phase_only=True).max_retries == 7


def test_a_new_phase_starts_with_its_own_budget_and_zero_counts() -> None:
    tired = replace(claimed(a_task()), retry_count=2, retry_base=1, crash_count=2, rescue_count=1)
    tired = replace(tired, error="x", error_class="network")
    image = rules.complete(tired, PLAN, None, NOW)
    video = rules.pass_(rules.signal(image, "images.ready", "null", "s", NOW), PLAN, NOW)
    assert (video.phase, video.max_retries) == ("video", 1)
    for task in (image, video):
        assert (task.retry_count, task.retry_base, task.attempt, task.crash_count, task.rescue_count) == (0, 0, 0, 0, 0)
        assert (task.error, task.error_class) == (None, None)


def test_a_task_at_an_unknown_phase_is_retried_by_the_default_policy() -> None:
    after = rules.fail(claimed(a_task(phase="gone")), BROKEN, PLAN, NOW)
    assert after.status is WAITING
    assert rules.fail(claimed(a_task(phase="gone")), HOPELESS, PLAN, NOW).status is FAILED


def test_three_crashes_fail_a_task_and_cost_no_retry() -> None:
    task = a_task()
    for expected in (WAITING, WAITING, FAILED):
        task = rules.crash(claimed(task), failure("killed", "crash"), NOW)
        assert task.status is expected
    assert (task.crash_count, task.retry_count, task.error_class) == (3, 0, "crash")


def test_a_rescued_task_has_a_new_token() -> None:
    held = claimed(a_task())
    rescued = rules.rescue(held, NOW, by="w2")
    assert (rescued.status, rescued.token) == (WAITING, held.token + 1)
    assert claimed(rescued).token == held.token + 2


def test_a_rescued_task_is_a_suspect_and_its_rescue_counts_neither_as_retry_nor_as_crash() -> None:
    held = replace(claimed(a_task(retry_count=1)), crash_count=1, error="before", error_class="network")
    rescued = rules.rescue(held, NOW, by="w2")
    assert (rescued.suspect, rescued.rescue_count) == (True, 1)
    assert (rescued.retry_count, rescued.crash_count, rescued.run_at) == (1, 1, NOW)
    assert (rescued.error, rescued.error_class) == ("before", "network")
    (entry,) = rescued.history
    assert (entry.what, entry.note, entry.error_class) == ("rescued", "worker w1 died or lost its lease", "")


def test_a_rescue_of_an_attempt_that_had_not_begun_counts_towards_nothing() -> None:
    held = claimed(a_task())
    rescued = rules.rescue(held, NOW, by="w2")
    for task in (rescued, claimed(rescued, worker="w2")):  # another worker may have claimed it since
        after = rules.uncount_rescue(task, held, NOW)
        assert (after.rescue_count, after.suspect, after.status, after.token) == (0, False, task.status, task.token)
        assert after.history == rescued.history
    assert rules.uncount_rescue(after, held, NOW) is after  # only once


def test_only_the_last_rescue_and_that_of_the_same_attempt_is_uncounted() -> None:
    first = claimed(a_task())
    second = claimed(rules.rescue(first, NOW, by="w2"))
    rescued = rules.rescue(second, NOW, by="w2")
    assert rules.uncount_rescue(rescued, first, NOW) is rescued
    assert rules.uncount_rescue(rescued, replace(second, leased_by="w9"), NOW) is rescued
    assert rules.uncount_rescue(rescued, second, NOW).rescue_count == 1
    done = rules.complete(claimed(rescued), PLAN, "1", NOW)
    assert rules.uncount_rescue(done, second, NOW) is done


def test_an_interrupted_task_is_a_suspect_and_keeps_its_token() -> None:
    held = claimed(a_task())
    back = rules.interrupt(held, "its host was killed", NOW, by="w1")
    assert (back.status, back.token, back.rescue_count, back.crash_count) == (WAITING, held.token, 1, 0)


@pytest.mark.parametrize(
    "end",
    [
        lambda task: rules.fail(task, BROKEN, PLAN, NOW),
        lambda task: rules.snooze(task, SECOND, NOW),
        lambda task: rules.park(task, "signal:x", None, NOW),
        lambda task: rules.complete(task, PLAN, "1", NOW),
    ],
    ids=["fail", "snooze", "park", "advance"],
)
def test_a_suspect_whose_attempt_has_an_outcome_is_no_longer_a_suspect(end: object) -> None:
    suspect = claimed(rules.rescue(claimed(a_task()), NOW))
    after: Task = end(suspect)  # type: ignore[operator]
    assert (after.suspect, after.rescue_count) == (False, 0)


@pytest.mark.parametrize(
    "why",
    [failure("no file left", "resource"), failure("cancelled", "unknown", exception="CancelledError")],
    ids=["resource", "cancelled"],
)
def test_a_suspect_that_fails_as_one_that_harms_others_stays_a_suspect(why: Failure) -> None:
    task = a_task()
    for _ in range(3):
        task = rules.rescue(claimed(task), NOW)
    failed = rules.fail(claimed(task), why, STEADY, NOW)
    assert (failed.suspect, failed.rescue_count) == (True, 1)
    assert not rules.fail(claimed(a_task()), why, STEADY, NOW).suspect


def test_a_suspect_that_is_handed_back_is_still_a_suspect() -> None:
    assert rules.hand_back(claimed(rules.rescue(claimed(a_task()), NOW)), NOW).suspect


def test_a_task_that_crashed_is_isolated_for_the_rest_of_its_phase() -> None:
    crashed = rules.crash(claimed(rules.rescue(claimed(a_task()), NOW)), failure("killed", "crash"), NOW)
    assert (crashed.crash_count, crashed.rescue_count, crashed.suspect) == (1, 0, True)
    assert rules.fail(claimed(crashed), BROKEN, STEADY, NOW).suspect


def test_twenty_rescues_in_a_row_cost_nothing_and_the_next_fails_the_task() -> None:
    task = a_task()
    for _ in range(20):
        task = rules.rescue(claimed(task), NOW)
        assert task.status is WAITING
    failed = rules.rescue(claimed(task), NOW)
    assert (failed.status, failed.error_class, failed.retry_count, failed.crash_count) == (FAILED, "crash", 0, 0)
    assert failed.history[-1].exception == "TooManyRescues"
    assert (failed.error or "").startswith("script was cut off 21 times in a row without an outcome (max_rescues=20)")
    again = rules.retry(failed, PLAN, NOW)
    assert (again.rescue_count, again.suspect, again.error) == (0, False, None)


def test_a_phase_sets_its_own_max_rescues() -> None:
    plan = Plan(name="videos", phases=(PhasePlan(name="script", retry=Retry(max_rescues=1)),))
    once = rules.rescue(claimed(a_task()), NOW, plan=plan)
    assert once.status is WAITING
    assert rules.rescue(claimed(once), NOW, plan=plan).status is FAILED


def test_snooze_and_hand_back_cost_no_retry() -> None:
    held = claimed(a_task(retry_count=1))
    snoozed = rules.snooze(held, 10 * SECOND, NOW)
    assert (snoozed.retry_count, snoozed.run_at, snoozed.crash_count) == (1, NOW + 10 * SECOND, 0)
    back = rules.hand_back(held, NOW + SECOND)
    assert (back.retry_count, back.run_at, back.attempt) == (1, NOW, 0)
    assert [entry.what for entry in back.history] == ["handed back"]
    assert rules.hand_back(held, NOW, started=False).history == []


def test_a_retry_by_hand_gives_a_new_budget_and_keeps_counting() -> None:
    failed = failed_until_it_ends(a_task(max_retries=3), BROKEN)[-1]
    again = rules.retry(failed, STEADY, NOW, by="ann", note="cable was out")
    assert (again.status, again.retry_count, again.retry_base, again.error) == (WAITING, 4, 4, None)
    assert len(failed_until_it_ends(again, BROKEN)) == 4
    assert (again.history[-1].what, again.history[-1].by, again.history[-1].note) == ("retry", "ann", "cable was out")


@given(
    wait=st.floats(0, 1e6),
    factor=st.floats(1, 100),
    jitter=st.floats(0, 1),
    tried=st.integers(0, 1000),
    seed=st.text(max_size=5),
)
def test_the_wait_of_a_retry_is_deterministic_and_bounded(
    wait: float, factor: float, jitter: float, tried: int, seed: str
) -> None:
    policy = Retry(3, wait=wait, factor=factor, jitter=jitter)
    seed = seed.encode("utf-8", "replace").decode()
    first, second = policy.after(BROKEN, tried, seed), policy.after(BROKEN, tried, seed)
    assert first == second
    assert first is not None
    least = min(timedelta(seconds=wait), timedelta(days=1))
    assert least <= first + timedelta(microseconds=1)
    assert first <= timedelta(days=2)


def test_tasks_that_fail_together_are_retried_at_different_times() -> None:
    policy = Retry(3, wait="1m", jitter=0.5)
    assert len({policy.after(BROKEN, 0, f"task-{n}") for n in range(20)}) > 15


@pytest.mark.parametrize(
    "wrong, field",
    [
        ({"max_retries": -1}, "max_retries"),
        ({"max_retries": 1001}, "max_retries"),
        ({"max_rescues": -1}, "max_rescues"),
        ({"max_retries": True}, "max_retries"),
        ({"max_retries": 1.5}, "max_retries"),
        ({"wait": "soon"}, "wait"),
        ({"wait": -1}, "wait"),
        ({"factor": 0}, "factor"),
        ({"factor": "3"}, "factor"),
        ({"jitter": 2}, "jitter"),
        ({"classes": {"netwrok": True}}, "classes"),
    ],
)
def test_an_invalid_policy_is_rejected_with_its_field(wrong: dict[str, object], field: str) -> None:
    with pytest.raises(BadInput) as caught:
        Retry(**wrong)  # type: ignore[arg-type]
    assert caught.value.field == field


@pytest.mark.parametrize(
    "end",
    [
        lambda task: rules.fail(task, BROKEN, PLAN, NOW),
        lambda task: rules.crash(task, BROKEN, NOW),
        lambda task: rules.interrupt(task, "host killed", NOW),
        lambda task: rules.rescue(task, NOW),
        lambda task: rules.snooze(task, SECOND, NOW),
        lambda task: rules.hand_back(task, NOW),
        lambda task: rules.park(task, "signal:x", None, NOW),
        lambda task: rules.stop_cancelled(task, NOW),
        lambda task: rules.complete(task, PLAN, "1", NOW),
        lambda task: rules.finish(task, "1", NOW),
    ],
    ids=["fail", "crash", "interrupt", "rescue", "snooze", "hand back", "park", "stop", "advance", "complete"],
)
def test_a_running_task_with_a_cancel_request_ends_cancelled_after_any_outcome(end: object) -> None:
    requested = rules.cancel(claimed(a_task(unique="k")), NOW, by="ann")
    assert (requested.status, requested.cancel_requested, requested.held_key) == (PROCESSING, True, "k")
    ended: Task = end(requested)  # type: ignore[operator]
    assert ended.status is CANCELLED
    assert (ended.completed_at, ended.held_key, ended.leased_by) == (NOW, None, None)
    assert ended.history[0].what == "cancel"


def test_the_result_of_a_phase_that_returned_before_it_was_stopped_is_kept() -> None:
    ended = rules.complete(rules.cancel(claimed(a_task()), NOW), PLAN, '"text"', NOW)
    assert ended.results == {"script": "text"}


def test_a_second_cancel_request_changes_nothing() -> None:
    asked = rules.cancel(claimed(a_task()), NOW)
    assert rules.cancel(asked, NOW + SECOND) is asked


def test_waiting_parked_and_failed_tasks_are_cancelled_at_once() -> None:
    parked = rules.park(claimed(a_task()), "signal:x", None, NOW)
    for task in (a_task(), parked, in_status(FAILED)):
        ended = rules.cancel(task, NOW, by="ann")
        assert (ended.status, ended.awaiting, ended.history[-1].by) == (CANCELLED, None, "ann")
    assert rules.cancel(in_status(FAILED), NOW).error == HOPELESS.message


def test_early_completion_clears_the_error() -> None:
    task = replace(claimed(a_task()), error="before", error_class="network")
    done = rules.finish(task, '"enough"', NOW + SECOND)
    assert (done.status, done.error, done.error_class, done.elapsed_time) == (COMPLETED, None, None, 1000)
    assert done.result == "enough"
