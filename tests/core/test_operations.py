"""Rules for phases in order, unique keys, signals, and operations by hand."""

from datetime import UTC, datetime, timedelta

import pytest

from onerow.core import rules, values
from onerow.core.errors import BadInput, BadPayload, IllegalMove, UnknownName
from onerow.core.failure import failure
from onerow.core.plan import PhasePlan, Plan
from onerow.core.rules import checkpoints
from onerow.core.signals import MAX_SIGNALS
from onerow.core.status import CANCELLED, COMPLETED, ENDS, FAILED, PROCESSING, WAITING, Status
from onerow.core.task import Task
from onerow.core.times import FAR
from tests.samples import BROKEN, NOW, PLAN, SECOND, a_task, claimed, in_status

DAY = timedelta(days=1)


# ── phases ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_task_passes_its_phases_in_order() -> None:
    task = a_task(phase="schedule", payload={"topic": "tides"})
    task = rules.pass_(task, PLAN, NOW)
    assert (task.phase, task.status) == ("script", WAITING)
    task = rules.complete(claimed(task), PLAN, '"text"', NOW)
    assert (task.phase, task.awaiting, task.deadline) == ("image", "signal:images.ready", NOW + 3 * DAY)
    task = rules.signal(task, "images.ready", '["a.png"]', "s1", NOW)
    assert (task.awaiting, task.run_at) == (None, NOW)
    task = rules.pass_(task, PLAN, NOW)
    task = rules.complete(claimed(task), PLAN, '"v.mp4"', NOW)
    task = rules.complete(claimed(task), PLAN, '{"url":"y"}', NOW)
    assert (task.status, task.phase) == (COMPLETED, "youtube")
    assert task.results == {"script": "text", "image": ["a.png"], "video": "v.mp4", "youtube": {"url": "y"}}
    assert task.result == {"url": "y"}
    assert [entry.what for entry in task.history] == ["passed", "advanced", "signal", "passed", "advanced", "completed"]
    assert task.task_id == "t1"


def test_a_new_phase_clears_the_progress_and_a_retry_keeps_it() -> None:
    half = rules.report(claimed(a_task(phase="script")), NOW, progress='{"done":1,"total":2,"note":""}')
    assert rules.complete(half, PLAN, '"text"', NOW).progress is None
    assert rules.fail(half, BROKEN, PLAN, NOW).progress == {"done": 1, "total": 2, "note": ""}


def test_wait_until_is_due_at_the_time_in_the_payload() -> None:
    plan = Plan(name="p", phases=(PhasePlan(name="a"), PhasePlan(name="b", kind="wait_until", field="at")))
    task = claimed(a_task(phase="a", payload={"at": "2027-01-01T09:00:00+09:00"}))
    waiting = rules.complete(task, plan, None, NOW)
    assert waiting.run_at == waiting.scheduled_time == datetime(2027, 1, 1, tzinfo=UTC)
    with pytest.raises(IllegalMove, match="not due before 2027"):
        rules.pass_(waiting, plan, NOW)
    assert rules.pass_(waiting, plan, waiting.run_at).status is COMPLETED


@pytest.mark.parametrize("payload", [None, {}, {"at": None}, ["at"], "at"])
def test_wait_until_is_due_at_once_without_a_time_in_the_payload(payload: object) -> None:
    phase = PhasePlan(name="b", kind="wait_until", field="at")
    assert rules.due_time(phase, payload, NOW) == NOW


@pytest.mark.parametrize("wrong", ["soon", 5, "2027-01-01T09:00:00", True])
def test_an_invalid_time_in_the_payload_is_rejected_by_name(wrong: object) -> None:
    phase = PhasePlan(name="b", kind="wait_until", field="at")
    with pytest.raises(BadInput, match=r"payload\.at"):
        rules.due_time(phase, {"at": wrong}, NOW)


def test_a_handler_may_jump_to_a_later_phase_and_never_back() -> None:
    jumped = rules.complete(claimed(a_task()), PLAN, None, NOW, to="youtube")
    assert (jumped.phase, jumped.history[-1].note) == ("youtube", "to youtube")
    for back in ("script", "schedule"):
        with pytest.raises(BadInput, match="later phase"):
            rules.complete(claimed(a_task()), PLAN, None, NOW, to=back)
    with pytest.raises(UnknownName):
        rules.complete(claimed(a_task()), PLAN, None, NOW, to="nowhere")


def test_a_result_that_would_make_the_row_too_large_is_rejected() -> None:
    task = claimed(a_task())
    big = '"' + "x" * 900_000 + '"'
    for n in range(8):
        task = task.with_changes(NOW, results_json=values.with_key(task.results_json, f"r{n}", big))
    with pytest.raises(BadPayload, match="would make the row"):
        rules.complete(task, PLAN, big, NOW)
    with pytest.raises(BadPayload, match="would make the row"):
        rules.finish(task, big, NOW)


def test_a_phase_with_code_is_not_passed() -> None:
    with pytest.raises(IllegalMove, match="has code"):
        rules.pass_(a_task(), PLAN, NOW)


def test_a_retry_of_a_completed_task_is_told_to_replay_it() -> None:
    with pytest.raises(IllegalMove, match="task t1 is completed; only failed tasks can be retried") as refused:
        rules.retry(in_status(COMPLETED), PLAN, NOW)
    assert refused.value.fix == "to run it again from its first phase: onerow replay t1"
    for status in (WAITING, PROCESSING, CANCELLED):
        with pytest.raises(IllegalMove, match="only failed tasks can be retried") as refused:
            rules.retry(in_status(status), PLAN, NOW)
        assert refused.value.fix == "see its status: onerow show t1"


def test_rename_replaces_a_former_phase_name() -> None:
    assert rules.rename(a_task(phase="film"), PLAN, NOW).phase == "video"


# ── unique keys ───────────────────────────────────────────────────────────────────────────────────────────────────


def ends(task: Task) -> list[Task]:
    held = claimed(task)
    return [
        rules.finish(held, None, NOW),
        rules.fail(held, failure("x", "permanent"), PLAN, NOW),
        rules.cancel(task, NOW),
        rules.stop_cancelled(held, NOW),
        rules.finish_by_hand(task, PLAN, NOW),
    ]


def test_every_end_of_a_task_releases_its_key() -> None:
    for ended in ends(a_task(unique="k")):
        assert (ended.unique_key, ended.held_key, ended.held_until) == ("k", None, None)


def test_unique_for_keeps_the_key_after_the_end() -> None:
    for ended in ends(a_task(unique="k", unique_for="7d")):
        assert (ended.held_key, ended.held_until) == ("k", NOW + 7 * DAY)
    for ended in ends(a_task(unique="k", unique_for="forever")):
        assert (ended.held_key, ended.held_until) == ("k", FAR)


def test_a_kept_key_is_released_after_unique_for_and_not_before() -> None:
    for ended in ends(a_task(unique="k", unique_for="7d")):
        with pytest.raises(IllegalMove, match="still holds"):
            rules.release_key(ended, NOW + 7 * DAY - SECOND)
        free = rules.release_key(ended, NOW + 7 * DAY)
        assert (free.held_key, free.held_until, free.status) == (None, None, ended.status)


def test_a_retried_or_replayed_task_holds_its_key_again() -> None:
    for unique_for in (None, "7d"):
        failed = rules.fail(claimed(a_task(unique="k", unique_for=unique_for)), failure("x", "auth"), PLAN, NOW)
        for again in (rules.retry(failed, PLAN, NOW), rules.replay(failed, PLAN, None, NOW)):
            assert (again.held_key, again.held_until) == ("k", None)


def test_a_tombstone_keeps_the_keys_and_nothing_else() -> None:
    for status in ENDS:
        task = in_status(status, unique="k", unique_for="forever", title="Tides", payload={"secret": 1}, user_id="u1")
        tombstone = rules.bury(task, NOW + DAY)
        assert (tombstone.task_id, tombstone.user_id, tombstone.held_key, tombstone.status) == ("t1", "u1", "k", status)
        assert tombstone.purged_at == NOW + DAY
        assert (tombstone.title, tombstone.payload, tombstone.results, tombstone.history, tombstone.error) == (
            "",
            None,
            {},
            [],
            None,
        )


# ── signals ───────────────────────────────────────────────────────────────────────────────────────────────────────


def at_image(now: datetime = NOW) -> Task:
    return rules.complete(claimed(a_task(), now), PLAN, None, now)


def test_a_signal_sent_before_the_wait_is_used() -> None:
    early = rules.signal(a_task(), "images.ready", '"a.png"', "s1", NOW)
    assert early.phase == "script"
    image = rules.complete(claimed(early), PLAN, None, NOW)
    assert (image.phase, image.awaiting, image.run_at) == ("image", None, NOW)
    video = rules.pass_(image, PLAN, NOW)
    assert video.results["image"] == "a.png"
    assert video.signals == []


def test_a_signal_of_another_name_stays_pending() -> None:
    task = rules.signal(at_image(), "other", "1", "s1", NOW)
    assert task.awaiting == "signal:images.ready"
    task = rules.signal(task, "images.ready", "2", "s2", NOW)
    video = rules.pass_(task, PLAN, NOW)
    assert video.results["image"] == 2
    assert [each["name"] for each in video.signals] == ["other"]


def test_only_the_first_of_several_signals_is_consumed() -> None:
    task = at_image()
    for n in range(3):
        task = rules.signal(task, "images.ready", str(n), f"s{n}", NOW)
    video = rules.pass_(task, PLAN, NOW)
    assert video.results["image"] == 0
    assert [each["payload"] for each in video.signals] == [1, 2]


def test_a_signal_with_a_pending_id_changes_nothing() -> None:
    once = rules.signal(a_task(), "x", "1", "s1", NOW)
    assert rules.signal(once, "x", "1", "s1", NOW + SECOND) is once


def test_a_signal_delivered_again_after_it_was_taken_changes_nothing() -> None:
    task = rules.pass_(rules.signal(at_image(), "images.ready", "1", "s1", NOW), PLAN, NOW)
    assert task.signals == []
    assert rules.signal(task, "images.ready", "1", "s1", NOW + SECOND) is task
    held = claimed(a_task(signals_json=task.signals_json))
    parked = rules.park(held, "signal:images.ready", None, NOW)
    assert parked.awaiting == "signal:images.ready", "a later wait is not satisfied by what an earlier one took"
    assert rules.signal(parked, "images.ready", "2", "s2", NOW).awaiting is None


def test_the_id_of_a_signal_taken_by_a_handler_is_kept() -> None:
    signalled = rules.signal(claimed(a_task()), "x", "1", "s1", NOW)
    took = checkpoints.take_signal(signalled, "wait:x:1", "x", NOW)
    assert took is not None
    assert rules.signal(took, "x", "1", "s1", NOW + SECOND) is took
    assert checkpoints.take_signal(took, "wait:x:2", "x", NOW) is None


def test_the_ids_of_the_last_hundred_taken_signals_are_kept() -> None:
    task = claimed(a_task())
    for n in range(150):
        task = rules.signal(task, "x", str(n), f"s{n}", NOW)
        took = checkpoints.take_signal(task, f"wait:x:{n}", "x", NOW)
        assert took is not None
        task = took
    kept = rules.signal(task, "y", "1", "kept", NOW)
    assert rules.signal(kept, "x", "99", "s50", NOW) is kept
    assert rules.signal(kept, "x", "99", "s49", NOW).signals[-1]["id"] == "s49"
    assert len(task.signals_json) < 12_000


def test_the_number_of_pending_signals_is_limited() -> None:
    task = a_task()
    for n in range(MAX_SIGNALS):
        task = rules.signal(task, "x", "null", f"s{n}", NOW)
    with pytest.raises(BadInput, match="already keeps 100 signals") as caught:
        rules.signal(task, "x", "null", "one more", NOW)
    assert caught.value.field == "signal"
    assert len(task.signals) == 100


def test_a_running_task_receives_a_signal_and_keeps_its_lease() -> None:
    held = claimed(a_task())
    signalled = rules.signal(held, "x", "1", "s1", NOW)
    assert (signalled.status, signalled.token, signalled.leased_until) == (PROCESSING, held.token, held.leased_until)


def test_a_park_with_a_pending_signal_is_due_at_once() -> None:
    signalled = rules.signal(claimed(a_task()), "x", "1", "s1", NOW)
    ready = rules.park(signalled, "signal:x", NOW + DAY, NOW)
    assert (ready.status, ready.awaiting, ready.run_at) == (WAITING, None, NOW)


def test_a_park_without_a_deadline_waits_for_ever() -> None:
    parked = rules.park(claimed(a_task()), "children", None, NOW)
    assert (parked.run_at, parked.deadline, parked.parked, parked.started_at) == (FAR, None, True, None)
    assert parked.history[-1].note == "children"
    assert rules.park(claimed(a_task()), "signal:x", NOW + DAY, NOW).deadline == NOW + DAY


def test_a_missing_signal_fails_the_task_with_class_timeout() -> None:
    late = at_image()
    with pytest.raises(IllegalMove, match="not expired"):
        rules.expire(late, PLAN, NOW + 3 * DAY - SECOND)
    expired = rules.expire(late, PLAN, NOW + 3 * DAY)
    assert (expired.status, expired.error_class, expired.awaiting) == (FAILED, "timeout", None)
    assert expired.error is not None
    assert "images.ready" in expired.error
    assert expired.history[-1].what == "expired"


def test_on_timeout_names_the_phase_after_an_expired_wait() -> None:
    waits = PhasePlan(name="image", kind="wait_for", signal="go", timeout=DAY, on_timeout="youtube")
    plan = Plan(
        name="videos", phases=(PhasePlan(name="script"), waits, PhasePlan(name="video"), PhasePlan(name="youtube"))
    )
    parked = rules.complete(claimed(a_task()), plan, None, NOW)
    expired = rules.expire(parked, plan, NOW + DAY)
    assert (expired.status, expired.phase, expired.awaiting, expired.run_at) == (WAITING, "youtube", None, NOW + DAY)


def test_an_expired_wait_of_a_handler_makes_the_task_due() -> None:
    parked = rules.park(claimed(a_task()), "signal:x", NOW + DAY, NOW)
    woken = rules.expire(parked, PLAN, NOW + DAY)
    assert (woken.status, woken.phase, woken.awaiting, woken.run_at) == (WAITING, "script", None, NOW + DAY)


def test_only_a_parked_task_past_its_deadline_expires() -> None:
    with pytest.raises(IllegalMove, match="not expired"):
        rules.expire(a_task(), PLAN, NOW + DAY)


# ── by hand ───────────────────────────────────────────────────────────────────────────────────────────────────────


def finished() -> Task:
    task = rules.complete(claimed(a_task()), PLAN, '"text"', NOW)
    task = rules.pass_(rules.signal(task, "images.ready", "1", "s", NOW), PLAN, NOW)
    task = rules.complete(
        rules.report(claimed(task), NOW, steps='{"youtube":{"upload":{"at":""}}}', progress="1"), PLAN, '"v.mp4"', NOW
    )
    return rules.complete(claimed(task), PLAN, '"url"', NOW)


def test_a_replay_clears_results_and_steps_from_its_phase_on() -> None:
    done = finished()
    again = rules.replay(done, PLAN, "video", NOW + DAY, by="ann")
    assert (again.status, again.phase, again.generation) == (WAITING, "video", 1)
    assert again.results == {"script": "text", "image": 1}
    assert (again.steps, again.progress, again.completed_at, again.retry_count) == ({}, None, None, 0)
    assert (again.history[-1].what, again.history[-1].by) == ("replay", "ann")
    whole = rules.replay(done, PLAN, None, NOW)
    assert (whole.phase, whole.results) == ("schedule", {})
    assert rules.replay(done, PLAN, "film", NOW).phase == "video"


def test_a_replay_from_a_wait_waits_again() -> None:
    again = rules.replay(finished(), PLAN, "image", NOW + DAY)
    assert (again.awaiting, again.deadline) == ("signal:images.ready", NOW + 4 * DAY)


def test_a_replay_can_t_start_at_a_phase_the_task_never_reached() -> None:
    with pytest.raises(IllegalMove, match="never reached youtube"):
        rules.replay(in_status(FAILED), PLAN, "youtube", NOW)
    with pytest.raises(UnknownName, match="did you mean 'video'"):
        rules.replay(in_status(FAILED), PLAN, "vidoe", NOW)


def test_finish_by_hand_ends_the_task_or_only_its_phase() -> None:
    failed = in_status(FAILED)
    done = rules.finish_by_hand(failed, PLAN, NOW, by="ann", note="did it myself")
    assert (done.status, done.error, done.completed_at, done.phase) == (COMPLETED, None, NOW, "script")
    assert (done.history[-1].what, done.history[-1].by, done.history[-1].note) == ("finish", "ann", "did it myself")
    on = rules.finish_by_hand(failed, PLAN, NOW, phase_only=True)
    assert (on.status, on.phase) == (WAITING, "image")
    assert rules.finish_by_hand(a_task(phase="youtube"), PLAN, NOW, phase_only=True).status is COMPLETED


def test_a_parked_task_finished_by_hand_is_no_longer_parked() -> None:
    assert rules.finish_by_hand(at_image(), PLAN, NOW).awaiting is None
    on = rules.finish_by_hand(at_image(), PLAN, NOW, phase_only=True)
    assert (on.phase, on.awaiting) == ("video", None)


def test_reschedule_changes_the_due_time_or_the_deadline_of_a_parked_task() -> None:
    moved = rules.reschedule(a_task(), NOW + DAY, NOW, by="ann")
    assert moved.run_at == moved.scheduled_time == NOW + DAY
    assert moved.history[-1].what == "reschedule"
    parked = rules.reschedule(at_image(), NOW + DAY, NOW)
    assert (parked.deadline, parked.scheduled_time, parked.awaiting) == (NOW + DAY, None, "signal:images.ready")


def test_priorities_are_bounded_and_a_change_is_recorded() -> None:
    moved = rules.set_priority(a_task(), -100, NOW, by="ann")
    assert (moved.priority, moved.history[-1].note) == (-100, "0 → -100")
    for wrong in (-101, 101, True, 1.0, "1", None):
        with pytest.raises(BadInput) as caught:
            rules.set_priority(a_task(), wrong, NOW)  # type: ignore[arg-type]
        assert caught.value.field == "priority"


def test_metadata_can_be_changed_in_any_status() -> None:
    for status in Status:
        assert rules.annotate(in_status(status), '{"a":1}', NOW).metadata == {"a": 1}


def test_progress_and_steps_are_written_independently() -> None:
    held = claimed(a_task())
    assert rules.report(held, NOW, progress='{"done":3}').progress == {"done": 3}
    assert rules.report(held, NOW, steps='{"fetch":1}').steps == {"fetch": 1}


def test_a_task_knows_the_duration_of_its_last_attempt() -> None:
    failed = rules.fail(claimed(a_task()), BROKEN, PLAN, NOW + 3 * SECOND)
    assert (failed.elapsed_time, failed.elapsed) == (3000, 3 * SECOND)
    assert a_task().elapsed is None
    # A clock that was set back gives no negative duration.
    assert rules.fail(claimed(a_task()), BROKEN, PLAN, NOW - SECOND).elapsed_time == 0
