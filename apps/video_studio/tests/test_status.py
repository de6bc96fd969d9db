"""Setting a status by hand, by legal moves only."""

from typing import Any

import pytest

from apps.video_studio.tests.kit import ended, row_only, work
from onerow import BadInput, IllegalMove, Queue, UnknownName
from video_studio import add_video, schedules_by_tab, update_queue_status

SOON = "2030-01-01T00:00:00Z"


def failed(queue: Queue, task_id: str = "t1") -> None:
    row_only(task_id)
    work()
    assert queue.get(task_id).status == "failed"


@pytest.mark.contract(
    "A status is set by task id alone.",
    "Setting a status takes an error message, a retry count and metadata as options.",
)
def test_a_status_is_set_by_task_id_alone_with_error_message_retry_count_and_metadata(queue: Queue) -> None:
    add_video("tides", task_id="t1", scheduled_time=SOON)
    after = update_queue_status("t1", "failed", error_message="no pictures anywhere", metadata={"crawler": 3})
    assert (after.status, after.type, after.error, after.metadata) == (
        "failed", "schedule", "no pictures anywhere", {"crawler": 3},
    )  # fmt: skip
    again = update_queue_status("t1", "waiting", retry_count=5, metadata={"crawler": 4})
    assert (again.status, again.type, again.retry_count, again.error, again.metadata) == (
        "waiting", "schedule", 5, None, {"crawler": 4},
    )  # fmt: skip
    assert [entry.what for entry in again.history] == ["fail", "retry"]
    assert update_queue_status("t1", "completed", error_message="done elsewhere").status == "completed"
    assert queue.get("t1").history[-1].note == "done elsewhere"
    assert queue.get("t1").error is None


def test_without_a_retry_count_a_retry_adds_one(queue: Queue) -> None:
    failed(queue)
    assert update_queue_status("t1", "waiting").retry_count == 1


@pytest.mark.contract("Setting a status creates the row if it is absent.")
def test_setting_a_status_creates_the_row_if_it_is_absent(queue: Queue) -> None:
    made = update_queue_status("new", "waiting", metadata={"by": "hand"})
    assert (made.type, made.status, made.user_id, made.metadata) == ("schedule", "waiting", "studio", {"by": "hand"})
    assert [line.task_id for line in schedules_by_tab("scheduled")] == ["new"]
    for status in ("completed", "failed", "cancelled"):
        with pytest.raises(IllegalMove, match="a new one begins as 'waiting'"):
            update_queue_status("other", status, error_message="x")
    with pytest.raises(BadInput, match="has not been retried"):
        update_queue_status("other", "waiting", retry_count=1)
    with pytest.raises(BadInput, match="can't name a file"):
        update_queue_status("../up", "waiting")
    assert len(list(queue.select())) == 1


def test_a_row_created_so_takes_topic_and_time_from_the_apps_tables(queue: Queue) -> None:
    add_video("tides", task_id="t1", scheduled_time=SOON)
    queue.cancel("t1")
    assert queue.purge(older_than=0) == 1
    made = update_queue_status("t1", "waiting")
    assert (made.title, made.run_at.isoformat()) == ("tides", "2030-01-01T00:00:00+00:00")


@pytest.mark.contract("Setting a status moves only along legal moves; another is a clear error.")
def test_setting_a_status_moves_only_along_legal_moves_and_another_is_a_clear_error(queue: Queue) -> None:
    add_video("tides", task_id="done", scheduled_time=SOON)
    update_queue_status("done", "completed")
    add_video("tides", task_id="gone", scheduled_time=SOON)
    update_queue_status("gone", "cancelled")
    cases: list[tuple[str, str, str]] = [
        ("done", "waiting", "studio queue replay done"),
        ("done", "failed", "has ended"),
        ("done", "cancelled", "has ended"),
        ("gone", "waiting", "cancelled is final"),
        ("gone", "completed", "cancelled is final"),
        ("gone", "failed", "cancelled is final"),
    ]
    before = [queue.get("done"), queue.get("gone")]
    for task_id, status, says in cases:
        with pytest.raises(IllegalMove, match=says):
            update_queue_status(task_id, status, error_message="x", metadata={"not": "written"})
    assert [queue.get("done"), queue.get("gone")] == before
    assert update_queue_status("done", "completed") == before[0]  # already in that status


@pytest.mark.contract("Setting processing by hand is refused, and says why.")
def test_setting_processing_by_hand_is_refused_and_says_why(queue: Queue) -> None:
    add_video("tides", task_id="t1", scheduled_time=SOON)
    with pytest.raises(IllegalMove, match="only a worker that holds its lease"):
        update_queue_status("t1", "processing")
    with pytest.raises(IllegalMove, match="only a worker that holds its lease"):
        update_queue_status("absent", "processing")


def test_what_a_worker_holds_can_only_be_cancelled(queue: Queue) -> None:
    row_only("t1")
    queue.finish("t1", phase_only=True)
    (lease,) = queue.claim("videos", "script")
    for status in ("waiting", "completed", "failed"):
        with pytest.raises(IllegalMove, match="a worker holds it"):
            update_queue_status("t1", status, error_message="x")
    asked = update_queue_status("t1", "cancelled")
    assert (asked.status, asked.cancel_requested) == ("processing", True)
    lease.complete("too late")
    assert ended("t1").status == "cancelled"


@pytest.mark.parametrize(
    "wrong, error",
    [
        ({"status": "done"}, UnknownName),
        ({"status": "failed"}, BadInput),
        ({"status": "completed", "retry_count": 1}, BadInput),
        ({"status": "waiting", "metadata": "text"}, BadInput),
        ({"status": "waiting", "retry_count": 4}, IllegalMove),
    ],
    ids=["unknown status", "no message", "count without retry", "metadata that is none", "count of a waiting one"],
)
def test_wrong_options_are_clear_errors_and_change_nothing(
    queue: Queue, wrong: dict[str, Any], error: type[Exception]
) -> None:
    task = add_video("tides", task_id="t1", scheduled_time=SOON)
    with pytest.raises(error):
        update_queue_status("t1", **wrong)
    assert queue.get("t1") == task
