"""The row of a task has the names and defaults of the studio's specification."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from apps.video_studio.tests.kit import at, ended, good, row_only, work
from onerow import BadInput, IllegalMove, Queue, UnknownName
from onerow.testing import Rehearsal
from video_studio import add_video, next_phase, update_queue_status, videos
from video_studio.library import find_video, writing

NAMES = {
    "task_id", "type", "status", "user_id", "priority", "created_at", "started_at", "completed_at", "elapsed_time",
    "retry_count", "max_retries", "error", "metadata", "logs",
}  # fmt: skip


def columns(queue: Queue, home: Path) -> dict[str, tuple[str, bool]]:
    queue.count()
    with closing(sqlite3.connect(home / "studio.db")) as connection:
        found = connection.execute("PRAGMA table_info(task_queue)").fetchall()
    return {name: (kind, bool(not_null)) for _, name, kind, not_null, _, _ in found}


@pytest.mark.contract(
    "The table task_queue has the columns task_id, type, status, user_id, priority, created_at, started_at, completed_at, elapsed_time, retry_count, max_retries, error, metadata and logs.",
    "user_id is never null.",
)
def test_the_table_task_queue_has_the_columns_and_user_id_is_never_null(queue: Queue, home: Path) -> None:
    found = columns(queue, home)
    assert set(found) >= NAMES
    assert found["user_id"] == ("TEXT", True)
    assert found["elapsed_time"][0] == found["retry_count"][0] == found["max_retries"][0] == "INTEGER"


@pytest.mark.contract("task_id is TEXT, never null, and the primary key.")
def test_task_id_is_text_never_null_and_the_primary_key(queue: Queue, home: Path) -> None:
    assert columns(queue, home)["task_id"] == ("TEXT", True)
    row_only("t1")
    with closing(sqlite3.connect(home / "studio.db")) as connection:
        keys = connection.execute("SELECT name FROM pragma_table_info('task_queue') WHERE pk").fetchall()
        assert keys == [("task_id",)]
        for task_id in ("t1", None):
            with pytest.raises(sqlite3.IntegrityError):
                connection.execute("INSERT INTO task_queue (task_id, type) VALUES (?, 'script')", (task_id,))


@pytest.mark.contract("priority and retry_count begin at 0, max_retries at 3, created_at at now.")
def test_priority_and_retry_count_begin_at_0_max_retries_at_3_created_at_at_now(queue: Queue, home: Path) -> None:
    queue.count()
    with closing(sqlite3.connect(home / "studio.db", isolation_level=None)) as connection:
        connection.execute("INSERT INTO task_queue (task_id, type, status) VALUES ('by-hand', 'script', 'waiting')")
    for task in (queue.get("by-hand"), add_video("tides")):
        assert (task.priority, task.retry_count, task.max_retries, task.error) == (0, 0, 3, None)
        assert abs(task.created_at - datetime.now(UTC)) < timedelta(minutes=1)
        assert (task.started_at, task.completed_at, task.elapsed_time) == (None, None, None)


@pytest.mark.contract(
    "A task is one row from its first phase to its last; a phase change updates it.",
    "elapsed_time is whole milliseconds.",
    "metadata and logs hold JSON.",
    "Success sets type to the next phase and status to waiting.",
    "Success sets started_at, completed_at and error to null and retry_count to 0.",
    "Success sets elapsed_time.",
    "After the last phase status is completed, with completed_at and elapsed_time set.",
)
def test_a_task_is_one_row_that_success_moves_to_the_next_phase_until_it_is_completed(queue: Queue, home: Path) -> None:
    task = add_video("tides", draw=True, metadata={"series": "바다"})
    work(phases=["script"])
    # The script is done; image waits, or the WaitPhaseSweeper has advanced it.
    after = queue.get(task.task_id)
    assert (after.type, after.status) in (("image", "waiting"), ("video", "waiting"))
    assert (after.started_at, after.completed_at, after.error, after.retry_count) == (None, None, None, 0)
    assert isinstance(after.elapsed_time, int)
    work()
    done = queue.get(task.task_id)
    assert (done.type, done.status, done.error) == ("youtube", "completed", None)
    assert done.completed_at is not None
    assert isinstance(done.elapsed_time, int)
    assert good(done) == ["schedule", "script", "image", "video", "youtube"]
    with closing(sqlite3.connect(home / "studio.db")) as connection:
        rows = connection.execute("SELECT elapsed_time, metadata, logs FROM task_queue").fetchall()
    ((elapsed, metadata, logs),) = rows
    assert (type(elapsed), json.loads(metadata)) == (int, {"series": "바다"})
    assert [entry["phase"] for entry in json.loads(logs) if entry["what"] == "advanced"] == ["script", "video"]


@pytest.mark.contract("The app's tables task and task_schedule are joined to the queue's row by task_id.")
def test_task_and_task_schedule_are_joined_to_the_queues_row_by_task_id(queue: Queue, home: Path) -> None:
    task = add_video("tides", scheduled_time="2030-01-01T09:00:00+09:00")
    with closing(sqlite3.connect(home / "studio.db")) as connection:
        (row,) = connection.execute(
            "SELECT topic, s.scheduled_time, q.type, q.status FROM task JOIN task_schedule s USING (task_id) "
            "JOIN task_queue q USING (task_id)"
        ).fetchall()
    assert row == ("tides", "2030-01-01T00:00:00.000Z", "schedule", "waiting")
    known = find_video(task.task_id)
    assert known is not None
    assert known.scheduled_time == task.scheduled_time == datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.contract("The app's rows and the queue's row are written in one transaction.")
def test_the_apps_rows_and_the_queues_row_are_written_in_one_transaction(queue: Queue, home: Path) -> None:
    def cut_off() -> None:
        with writing() as tx:
            queue.add("videos", {}, task_id="t1", tx=tx)
            tx.execute("INSERT INTO task (task_id, topic) VALUES ('t1', 'tides')")
            raise RuntimeError("here")

    with pytest.raises(RuntimeError):
        cut_off()
    assert find_video("t1") is None
    with pytest.raises(UnknownName):
        queue.get("t1")
    add_video("tides", task_id="t1")
    with pytest.raises(BadInput, match="taken by the topic 'tides'"):
        add_video("clouds", task_id="t1")
    assert add_video("tides", task_id="t1") == queue.get("t1")


@pytest.mark.contract(
    "The phases are schedule, script, image, video and youtube, in this order.",
    "next_phase('youtube') is none.",
    "next_phase of an unknown phase is an error.",
)
def test_next_phase_goes_through_the_five_phases_is_none_for_youtube_and_an_error_for_an_unknown_one() -> None:
    assert [phase.name for phase in videos.plan.phases] == ["schedule", "script", "image", "video", "youtube"]
    phases = ["schedule", "script", "image", "video", "youtube", None]
    assert [next_phase(str(phase)) for phase in phases[:-1]] == phases[1:]
    with pytest.raises(UnknownName, match=r"no phase 'nothing'\nchoose one of .*schedule, script"):
        next_phase("nothing")


@pytest.mark.contract(
    "A phase that runs for more than 15 minutes fails with class timeout.",
    "A timeout is not retried by itself.",
    "A timed-out task keeps its type.",
    "The message of a timeout names the phase and the 15 minutes.",
)
def test_a_timeout_after_15_minutes_fails_the_task_at_its_phase_and_is_not_retried(
    queue: Queue, rehearsal: Rehearsal
) -> None:
    rehearsal.borrow(queue)
    for phase in ("script", "video", "youtube"):
        assert videos.plan.phase(phase).timeout == timedelta(minutes=15)
    task = row_only("t1")
    rehearsal.time_out("script").run_until_idle()
    after = rehearsal.get(task)
    assert (after.status, after.type, after.error_class, after.retry_count) == ("failed", "script", "timeout", 0)
    assert after.error == "script ran longer than 15 minutes and was stopped"
    assert [entry.what for entry in after.history] == ["passed", "failed"]


@pytest.mark.contract(
    "A retry makes a failed task waiting, keeps its type, adds 1 to retry_count and sets error to null.",
    "Cancelled is final.",
    "A retry must not revive a cancelled row.",
)
def test_a_retry_makes_a_failed_task_waiting_again_and_nothing_revives_a_cancelled_one(queue: Queue) -> None:
    row_only("t1")
    work()
    failed = queue.get("t1")
    assert (failed.status, failed.type) == ("failed", "script")
    assert failed.completed_at is not None
    again = queue.retry("t1")
    assert (again.status, again.type, again.retry_count, again.error) == ("waiting", "script", 1, None)
    gone = queue.cancel("t1")
    acts: list[Callable[[str], object]] = [
        queue.retry,
        queue.replay,
        queue.finish,
        queue.cancel,
        lambda task_id: queue.signal(task_id, "images.ready"),
        lambda task_id: update_queue_status(task_id, "waiting"),
    ]
    for act in acts:
        with pytest.raises(IllegalMove, match="is cancelled"):
            act("t1")
    work()
    assert queue.get("t1") == gone
    assert gone.status == "cancelled"


def test_a_task_id_that_could_leave_its_folder_is_refused_before_anything_is_stored(queue: Queue) -> None:
    for wrong in ("..", "../up", "a/b", ".hidden", "-f", "a b", "x" * 181, "", "a\x00b", "e\u0301"):
        with pytest.raises(BadInput):
            add_video("tides", task_id=wrong)
    assert queue.count() == []
    assert add_video("tides", task_id="조수-1").task_id == "조수-1"


def test_a_row_whose_id_can_not_name_a_folder_fails_for_good_and_touches_no_folder(queue: Queue, home: Path) -> None:
    queue.add("videos", {}, task_id="..")
    work()
    failed = ended("..")
    assert (failed.status, failed.error_class) == ("failed", "permanent")
    assert "can't name a file" in str(failed.error)
    assert not (home / "uploads").exists()


def test_a_topic_must_be_text_on_one_line_and_may_hold_joined_emoji(queue: Queue) -> None:
    for wrong in ("", "   ", "x" * 201, "a\x07b"):
        with pytest.raises(BadInput, match="a topic is text"):
            add_video(wrong)
    task = add_video("  가족 👨‍👩‍👧   여행 ")
    assert at(task, "schedule", "waiting").title == "가족 👨‍👩‍👧 여행"
