"""Failures of the studio's first design that this design prevents."""

import sqlite3
import threading
from contextlib import closing
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from apps.video_studio.tests.chat_server import ChatServer, hanging, refusing
from apps.video_studio.tests.chat_server import good as good_answer
from apps.video_studio.tests.kit import at, ended, good, joined, picture, processing, row_only, until, work, works
from onerow import Queue
from onerow.testing import Rehearsal
from video_studio import add_video, queue_counts, schedules_by_tab, update_queue_status
from video_studio.pipeline import Job, videos
from video_studio.uploads import upload

LONG = {"STUDIO_SIZE": "1280x720", "STUDIO_SECONDS": "900", "STUDIO_FPS": "60"}
"""A film that takes long enough to be interrupted."""


def ready_for_video(task_id: str, tmp_path: Path) -> None:
    """Add a task and upload its picture before anything runs."""
    add_video("tides", task_id=task_id)
    upload(task_id, [picture(tmp_path / f"{task_id}.png")])


@pytest.mark.contract("A missing joined row must not block its phase.")
def test_a_missing_joined_row_fails_for_good_and_does_not_block_its_phase(queue: Queue) -> None:
    row_only("orphan", priority=-5)
    add_video("tides", task_id="t1")
    work()
    orphan = queue.get("orphan")
    assert (orphan.status, orphan.type, orphan.error_class, orphan.retry_count) == ("failed", "script", "permanent", 0)
    assert "no row in the table `task`" in str(orphan.error)
    assert queue.get("t1").type == "image"
    joined("orphan")
    update_queue_status("orphan", "waiting")
    work()
    assert queue.get("orphan").type == "image"


@pytest.mark.faults
@pytest.mark.contract(
    "Timed-out work must not run on while its slot is given away.",
    "A cancel must reach the running work.",
    "A finish must not overwrite a cancel.",
)
def test_timed_out_and_cancelled_work_is_ended_for_real_before_its_slot_is_given_away(
    queue: Queue, home: Path, tmp_path: Path
) -> None:
    for task_id in ("one", "two"):
        ready_for_video(task_id, tmp_path)
    with works(home, STUDIO_PHASE_TIMEOUT="12s", **LONG) as studio:
        studio.start()
        first = until(processing("video"), "the first video")[0].task_id
        until(lambda: studio.living(f"{first}-0.mp4"), "its ffmpeg")
        second = until(lambda: [t for t in processing("video")() if t.task_id != first], "the second")[0].task_id
        # The slot has another holder: no process of the first one runs any more.
        assert studio.living(f"{first}-0.mp4") == []
        failed = queue.get(first)
        assert (failed.status, failed.type, failed.error_class) == ("failed", "video", "timeout")
        until(lambda: studio.living(f"{second}-0.mp4"), "the second's ffmpeg")
        update_queue_status(second, "cancelled")
        assert ended(second).status == "cancelled"
        assert studio.living(f"{second}-0.mp4") == []
        assert list((home / "videos").glob("*.mp4")) == []


@pytest.mark.contract("A finish must not overwrite a cancel.")
def test_a_finish_that_comes_after_a_cancel_does_not_overwrite_it(queue: Queue) -> None:
    joined("t1")
    row_only("t1")
    queue.finish("t1", phase_only=True)
    (lease,) = queue.claim("videos", "script")
    queue.cancel("t1")
    lease.complete({"title": "late"})
    gone = queue.get("t1")
    assert (gone.status, gone.type) == ("cancelled", "script")
    work()
    assert queue.get("t1") == gone


@pytest.mark.contract("max_retries is checked.", "Retries back off.", "What fails is retried by itself.")
def test_what_fails_is_retried_by_itself_with_back_off_until_max_retries(queue: Queue, rehearsal: Rehearsal) -> None:
    rehearsal.borrow(queue)
    joined("t1")
    queue.add(videos, Job(), task_id="t1")
    rehearsal.fail("script", ConnectionError("the line is dead"), times=99).run_until_idle()
    failed = rehearsal.get("t1")
    assert (failed.status, failed.type, failed.retry_count, failed.max_retries) == ("failed", "script", 3, 3)
    tries = [entry.when for entry in failed.history if entry.what == "failed"]
    waits = [after - before for before, after in pairwise(tries)]
    assert len(tries) == 4
    for wait, seconds in zip(waits, (5, 15, 45), strict=True):
        assert timedelta(seconds=seconds) <= wait <= timedelta(seconds=seconds * 1.1 + 0.01)


@pytest.mark.contract("image holds no slot while it waits.", "image does not time out at 15 minutes.")
def test_image_holds_no_slot_while_it_waits_and_does_not_time_out_at_15_minutes(
    queue: Queue, rehearsal: Rehearsal
) -> None:
    rehearsal.borrow(queue)
    for number in range(5):
        joined(f"t{number}")
        queue.add(videos, Job(), task_id=f"t{number}")
    rehearsal.forward("20d")
    waiting = [rehearsal.get(f"t{number}") for number in range(5)]
    assert {(task.type, task.status, task.slot, task.leased_by) for task in waiting} == {
        ("image", "waiting", None, None)
    }
    assert all(task.parked and task.error is None for task in waiting)
    queue.signal("t3", "images.ready", ["none.png"])
    rehearsal.run()
    assert rehearsal.get("t3").type == "video"
    rehearsal.forward("11d")
    assert (rehearsal.get("t0").status, rehearsal.get("t0").error_class) == ("failed", "timeout")


@pytest.mark.contract(
    "elapsed_time, error and retry_count of earlier phases are kept.",
    "Results are kept.",
    "logs and metadata are written.",
)
def test_the_row_tells_of_every_phase_its_time_its_errors_and_its_result(
    queue: Queue, chat: ChatServer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUDIO_OPENAI_BASE_URL", chat.url)
    chat.turns = [refusing(503)]
    add_video("tides", task_id="t1", draw=True)
    work()
    queue.reschedule("t1", queue.store.now())
    work()
    done = queue.get("t1")
    assert (done.status, done.retry_count, done.error) == ("completed", 0, None)
    assert list(done.results) == ["script", "image", "video", "youtube"]
    tries = [(entry.phase, entry.what, entry.attempt) for entry in done.history if entry.ms is not None]
    assert tries == [
        ("script", "failed", 1),
        ("script", "advanced", 2),
        ("video", "advanced", 1),
        ("youtube", "completed", 1),
    ]
    (failure,) = [entry for entry in done.history if entry.error]
    assert failure.error_class == "network"
    assert "503" in failure.error
    assert done.metadata == {"app": "video_studio"}
    texts = [line.text for line in queue.logs("t1").lines]
    assert any(text.startswith("script: 'Ebb & flow'") for text in texts)
    assert any(text.startswith("published: ") for text in texts)


@pytest.mark.faults
@pytest.mark.contract("A database error while success is recorded is not a failure, and the work is not done twice.")
def test_a_database_that_is_locked_while_success_is_recorded_makes_no_failure_and_no_second_run(
    queue: Queue, chat: ChatServer, home: Path
) -> None:
    chat.turns = [hanging]
    add_video("tides", task_id="t1")
    with works(home, STUDIO_OPENAI_BASE_URL=chat.url) as studio:
        studio.start()
        until(lambda: chat.asked, "the question")
        at("t1", "script", "processing")
        with closing(sqlite3.connect(home / "studio.db", timeout=30, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            chat.released.set()
            # The script is done, but for longer than the driver's timeout no result can be written.
            assert not threading.Event().wait(6)
            other.execute("ROLLBACK")
        done = at("t1", "image", "waiting")
    assert good(done) == ["schedule", "script"]
    assert (done.error, done.retry_count, len(chat.asked)) == (None, 0, 1)
    assert [entry.what for entry in done.history] == ["passed", "advanced"]


@pytest.mark.contract("No transaction fails with 'database is locked'.")
def test_no_transaction_fails_with_database_is_locked_while_many_write(queue: Queue) -> None:
    errors: list[Exception] = []
    begin = threading.Barrier(4)

    def write(name: str) -> None:
        begin.wait()
        try:
            for number in range(12):
                task_id = f"{name}-{number}"
                add_video(f"topic {number}", task_id=task_id, scheduled_time="2030-01-01T00:00:00Z")
                update_queue_status(task_id, "failed", error_message="for a moment")
                update_queue_status(task_id, "waiting", metadata={"by": name})
                schedules_by_tab("scheduled")
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(f"w{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert queue_counts()["scheduled"] == 48


@pytest.mark.faults
@pytest.mark.contract(
    "One processor, the engine's, runs every phase; the app has no queue loop of its own.",
    "At most one task at once is worked on in each phase.",
    "Different phases work side by side.",
)
def test_one_processor_works_on_one_task_at_once_in_each_phase_and_on_different_phases_side_by_side(
    queue: Queue, chat: ChatServer, home: Path, tmp_path: Path
) -> None:
    chat.turns = [good_answer, hanging]
    for number in range(4):
        ready_for_video(f"t{number}", tmp_path)
    with works(home, STUDIO_OPENAI_BASE_URL=chat.url, **LONG) as studio:
        studio.start()
        rendering = at("t0", "video", "processing")
        until(lambda: len(chat.asked) == 2, "a script beside it")
        (writing,) = until(processing("script"), "its row")
        assert (rendering.slot, writing.slot) == (0, 0)
        assert rendering.leased_by == writing.leased_by
        assert (queue_counts()["script"], queue_counts()["video"]) == (3, 1)
        chat.released.set()
        until(lambda: queue_counts()["video"] == 4, "the others before video")
        assert [task.task_id for task in processing("video")()] == ["t0"]
        assert len(until(lambda: studio.living("-0.mp4"), "ffmpeg")) == 1
    assert len(chat.asked) == 4


@pytest.mark.faults
@pytest.mark.contract("A worker looks for work at once when it is woken.", "A worker looks for due work each second.")
def test_a_worker_looks_for_work_when_it_is_woken_and_each_second(queue: Queue, home: Path) -> None:
    with works(home) as studio:
        studio.start("--interval", "1h")
        at(add_video("tides", task_id="woken"), "image", "waiting")
    with works(home) as studio:
        studio.start("--interval", "1s")
        # No write happens when it becomes due, so the worker has to poll.
        add_video("tides", task_id="due", scheduled_time=queue.store.now() + timedelta(seconds=2))
        at("due", "image", "waiting")
