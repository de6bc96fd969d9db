"""Who is tried again, when, and how often."""

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


def test_a_task_is_tried_once_more_than_it_has_retries() -> None:
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
def test_the_class_decides_whether_there_is_another_try(error_class: str) -> None:
    after = rules.fail(in_status(PROCESSING), Failure("x", error_class), STEADY, NOW)
    assert after.status == (WAITING if error_class in RETRIED else FAILED)
    assert after.error_class == error_class


def test_network_limit_resource_and_unknown_are_retried_and_the_rest_is_not() -> None:
    assert {"network", "limit", "resource", "unknown"} <= RETRIED
    assert not {"timeout", "auth", "permanent"} & RETRIED


@pytest.mark.parametrize("error_class", ERROR_CLASSES)
@pytest.mark.parametrize("again", [True, False])
def test_a_phase_can_change_what_a_class_means(error_class: str, again: bool) -> None:
    plan = Plan(name="videos", phases=(PhasePlan(name="script", retry=Retry(classes={error_class: again})),))
    after = rules.fail(in_status(PROCESSING), Failure("x", error_class), plan, NOW)
    assert after.status == (WAITING if again else FAILED)


def test_a_limit_is_waited_out_for_its_own_time() -> None:
    after = rules.fail(in_status(PROCESSING), Failure("slow down", "limit", after=timedelta(hours=1)), STEADY, NOW)
    assert after.run_at == NOW + timedelta(hours=1)
    assert after.retry_count == 1


def test_the_budget_given_by_the_adder_wins_in_every_phase() -> None:
    task = claimed(a_task(max_retries=7, own_retries=True))
    assert rules.advance(task, PLAN, None, NOW).max_retries == 7
    assert rules.finish(rules.hand_back(task, NOW), PLAN, NOW, phase_only=True).max_retries == 7


def test_a_phase_change_starts_with_the_budget_of_the_next_phase_and_no_counts() -> None:
    tired = replace(claimed(a_task()), retry_count=2, retry_base=1, crash_count=2, rescue_count=1)
    tired = replace(tired, error="x", error_class="network")
    image = rules.advance(tired, PLAN, None, NOW)
    video = rules.pass_(rules.signal(image, "images.ready", "null", "s", NOW), PLAN, NOW)
    assert (video.phase, video.max_retries) == ("video", 1)
    for task in (image, video):
        assert (task.retry_count, task.retry_base, task.attempt, task.crash_count, task.rescue_count) == (0, 0, 0, 0, 0)
        assert (task.error, task.error_class) == (None, None)


def test_a_phase_that_the_plan_no_longer_knows_is_retried_as_any_other() -> None:
    after = rules.fail(claimed(a_task(phase="gone")), BROKEN, PLAN, NOW)
    assert after.status is WAITING
    assert rules.fail(claimed(a_task(phase="gone")), HOPELESS, PLAN, NOW).status is FAILED


def test_three_crashes_end_a_task_and_cost_it_no_retry() -> None:
    task = a_task()
    for expected in (WAITING, WAITING, FAILED):
        task = rules.crash(claimed(task), failure("killed", "crash"), NOW)
        assert task.status is expected
    assert (task.crash_count, task.retry_count, task.error_class) == (3, 0, "crash")


def test_a_rescued_task_has_a_token_that_its_lost_holder_does_not_know() -> None:
    held = claimed(a_task())
    rescued = rules.rescue(held, NOW, by="w2")
    assert (rescued.status, rescued.token) == (WAITING, held.token + 1)
    assert claimed(rescued).token == held.token + 2


def test_a_rescue_makes_a_suspect_and_counts_neither_as_a_retry_nor_as_a_crash() -> None:
    held = replace(claimed(a_task(retry_count=1)), crash_count=1, error="before", error_class="network")
    rescued = rules.rescue(held, NOW, by="w2")
    assert (rescued.suspect, rescued.rescue_count) == (True, 1)
    assert (rescued.retry_count, rescued.crash_count, rescued.run_at) == (1, 1, NOW)
    assert (rescued.error, rescued.error_class) == ("before", "network")
    (entry,) = rescued.history
    assert (entry.what, entry.note, entry.error_class) == ("rescued", "worker w1 died or lost its lease", "")


def test_an_interrupted_task_is_a_suspect_and_its_holder_still_knows_the_token() -> None:
    held = claimed(a_task())
    back = rules.interrupt(held, "its host was killed", NOW, by="w1")
    assert (back.status, back.token, back.rescue_count, back.crash_count) == (WAITING, held.token, 1, 0)


@pytest.mark.parametrize(
    "end",
    [
        lambda task: rules.fail(task, BROKEN, PLAN, NOW),
        lambda task: rules.snooze(task, SECOND, NOW),
        lambda task: rules.park(task, "signal:x", None, NOW),
        lambda task: rules.advance(task, PLAN, "1", NOW),
    ],
    ids=["fail", "snooze", "park", "advance"],
)
def test_a_suspect_whose_attempt_ended_by_itself_is_no_suspect_any_more(end: object) -> None:
    suspect = claimed(rules.rescue(claimed(a_task()), NOW))
    after: Task = end(suspect)  # type: ignore[operator]
    assert (after.suspect, after.rescue_count) == (False, 0)


def test_a_suspect_that_is_handed_back_is_still_a_suspect() -> None:
    assert rules.hand_back(claimed(rules.rescue(claimed(a_task()), NOW)), NOW).suspect


def test_a_task_that_crashed_is_isolated_for_the_rest_of_its_phase() -> None:
    crashed = rules.crash(claimed(rules.rescue(claimed(a_task()), NOW)), failure("killed", "crash"), NOW)
    assert (crashed.crash_count, crashed.rescue_count, crashed.suspect) == (1, 0, True)
    assert rules.fail(claimed(crashed), BROKEN, STEADY, NOW).suspect


def test_twenty_rescues_in_a_row_cost_nothing_and_the_next_fails_the_task_with_an_error_of_its_own() -> None:
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


def test_the_bound_on_rescues_is_the_phase_s_own() -> None:
    plan = Plan(name="videos", phases=(PhasePlan(name="script", retry=Retry(max_rescues=1)),))
    once = rules.rescue(claimed(a_task()), NOW, plan=plan)
    assert once.status is WAITING
    assert rules.rescue(claimed(once), NOW, plan=plan).status is FAILED


def test_snoozing_and_handing_back_cost_nothing() -> None:
    held = claimed(a_task(retry_count=1))
    snoozed = rules.snooze(held, 10 * SECOND, NOW)
    assert (snoozed.retry_count, snoozed.run_at, snoozed.crash_count) == (1, NOW + 10 * SECOND, 0)
    back = rules.hand_back(held, NOW + SECOND)
    assert (back.retry_count, back.run_at, back.attempt) == (1, NOW, 0)
    assert [entry.what for entry in back.history] == ["handed back"]
    assert rules.hand_back(held, NOW, started=False).history == []


def test_a_retry_by_hand_gives_a_fresh_budget_and_counts_on() -> None:
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
def test_a_wait_is_always_the_same_for_the_same_try_and_never_beyond_bounds(
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


def test_neighbours_that_fail_together_don_t_come_back_together() -> None:
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
def test_a_policy_that_makes_no_sense_is_refused_by_field(wrong: dict[str, object], field: str) -> None:
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
        lambda task: rules.advance(task, PLAN, "1", NOW),
        lambda task: rules.complete(task, "1", NOW),
    ],
    ids=["fail", "crash", "interrupt", "rescue", "snooze", "hand back", "park", "stop", "advance", "complete"],
)
def test_a_running_task_that_was_asked_to_stop_ends_cancelled_however_it_ends(end: object) -> None:
    asked = rules.cancel(claimed(a_task(unique="k")), NOW, by="ann")
    assert (asked.status, asked.cancel_requested, asked.held_key) == (PROCESSING, True, "k")
    ended: Task = end(asked)  # type: ignore[operator]
    assert ended.status is CANCELLED
    assert (ended.completed_at, ended.held_key, ended.leased_by) == (NOW, None, None)
    assert ended.history[0].what == "cancel"


def test_the_result_of_a_phase_that_finished_before_it_could_be_stopped_is_kept() -> None:
    ended = rules.advance(rules.cancel(claimed(a_task()), NOW), PLAN, '"text"', NOW)
    assert ended.results == {"script": "text"}


def test_asking_twice_changes_nothing() -> None:
    asked = rules.cancel(claimed(a_task()), NOW)
    assert rules.cancel(asked, NOW + SECOND) is asked


def test_waiting_parked_and_failed_tasks_are_cancelled_at_once() -> None:
    parked = rules.park(claimed(a_task()), "signal:x", None, NOW)
    for task in (a_task(), parked, in_status(FAILED)):
        ended = rules.cancel(task, NOW, by="ann")
        assert (ended.status, ended.awaiting, ended.history[-1].by) == (CANCELLED, None, "ann")
    assert rules.cancel(in_status(FAILED), NOW).error == HOPELESS.message


def test_completing_early_leaves_no_error_behind() -> None:
    task = replace(claimed(a_task()), error="before", error_class="network")
    done = rules.complete(task, '"enough"', NOW + SECOND)
    assert (done.status, done.error, done.error_class, done.elapsed_time) == (COMPLETED, None, None, 1000)
    assert done.result == "enough"
