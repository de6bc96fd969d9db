"""The repository's calls: claims by id that are atomic, leased, fenced, and kept alive."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from apps.video_encoder.tests.kit import PATIENCE, until
from onerow import Queue
from video_encoder import VideoRepository, find_video, videos
from video_encoder.ladder import Ladder
from video_encoder.pipeline import Job
from video_encoder.repository import LEASE_SECONDS, new_worker_id
from video_encoder.status import VideoStatus

LADDER = Ladder("hls/1/", [], 2.0, True, {})


@pytest.fixture
def row(queue: Queue) -> str:
    return queue.add(videos, Job("raw/1/a.mp4", "a.mp4"), task_id="1").task_id


@pytest.mark.contract("`try_claim(task_id, worker_id, lease_seconds=14400) -> bool` is atomic.")
def test_of_many_claims_at_once_one_succeeds(queue: Queue, row: str) -> None:
    barrier = threading.Barrier(8)
    won: list[str] = []
    repositories = [VideoRepository(queue) for _ in range(8)]

    def claim(number: int) -> None:
        barrier.wait(PATIENCE)
        if repositories[number].try_claim(row, f"w{number}"):
            won.append(f"w{number}")

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert [queue.get(row).leased_by] == won
    for repository in repositories:
        repository.close()


@pytest.mark.contract("try_claim sets leased_by and leased_until.")
def test_a_claim_sets_leased_by_and_leased_until(queue: Queue, row: str) -> None:
    with VideoRepository(queue) as repository:
        before = queue.store.now()
        assert repository.try_claim_video(1, "encoder-1")  # ids may be numbers
        video = find_video(row)
        assert (video.status, video.leased_by) == (VideoStatus.PROCESSING, "encoder-1")
        assert video.leased_until is not None
        left = video.leased_until - before
        assert timedelta(seconds=LEASE_SECONDS) <= left < timedelta(seconds=LEASE_SECONDS + PATIENCE)


@pytest.mark.contract("try_claim is False for missing, running, ready or other.")
def test_a_claim_of_anything_but_an_uploaded_video_is_refused(queue: Queue, row: str) -> None:
    for video_id in ("ready", "failed", "cancelled"):
        queue.add(videos, Job(f"raw/{video_id}/a.mp4", "a.mp4"), task_id=video_id)
    queue.finish("ready")
    queue.fail("failed", "no picture in it")
    queue.cancel("cancelled")
    with VideoRepository(queue) as repository, VideoRepository(queue) as other:
        assert other.try_claim_video(row, "other")
        for video_id in ("missing", row, "ready", "failed", "cancelled"):
            assert repository.try_claim_video(video_id, "w1") is False
            assert repository.mark_processing(video_id) is False
        assert queue.get(row).leased_by == "other"


@pytest.mark.contract(
    "Its partners are `try_claim_video`, `mark_processing`, `complete_video`, `fail_video` and `is_cancel_requested`."
)
def test_its_partners_move_the_row(queue: Queue, row: str) -> None:
    with VideoRepository(queue) as repository:
        assert repository.mark_processing(row)
        assert find_video(row).status is VideoStatus.PROCESSING
        assert [repository.is_cancel_requested(video_id) for video_id in (row, "missing")] == [False, False]
        assert [repository.complete_video(row, LADDER), repository.complete_video(row, LADDER)] == [True, False]
        task = queue.get(row)
        assert (task.phase, task.results["encode"]["prefix"]) == ("check", "hls/1/")
        queue.cancel(row)
        assert repository.is_cancel_requested(row)
        queue.add(videos, Job("raw/2/a.mp4", "a.mp4"), task_id="2")
        assert repository.try_claim_video("2", "w1")
        assert repository.fail_video("2", "no picture in it", transient=False)
        assert find_video("2").status is VideoStatus.FAILED
        queue.add(videos, Job("raw/3/a.mp4", "a.mp4"), task_id="3")
        assert repository.try_claim_video("3", "w1")
    assert find_video("3").status is VideoStatus.UPLOADED  # handed back


@pytest.mark.contract("The kick after a failure can claim.")
def test_a_video_that_is_kicked_after_a_failure_can_be_claimed(queue: Queue, row: str) -> None:
    with VideoRepository(queue) as repository:
        assert repository.try_claim_video(row, "w1")
        assert repository.fail_video(row, ConnectionError("the bucket is unavailable"))
        assert find_video(row).status is VideoStatus.FAILED_TRANSIENT
        queue.reschedule(row, queue.store.now())  # instead of a wait for the engine's back-off
        assert repository.try_claim_video(row, "w2")
        assert queue.get(row).leased_by == "w2"


@pytest.mark.contract("Marking what the adapter doesn't hold returns False.")
def test_marking_what_it_does_not_hold_returns_false_and_changes_nothing(queue: Queue, row: str) -> None:
    with VideoRepository(queue) as holder, VideoRepository(queue) as other:
        assert other.complete_video(row, LADDER) is False
        assert holder.try_claim_video(row, "same-id")
        before = queue.get(row)
        assert other.try_claim_video(row, "same-id") is False
        assert other.complete_video(row, LADDER) is False
        assert other.fail_video(row, "not mine") is False
        assert queue.get(row) == before


@pytest.mark.contract(
    "The adapter keeps the token of its own claim and beats while it lives.",
    "A lease is renewed while its worker lives, and not 4 h without renewal.",
)
def test_a_lease_is_extended_while_its_process_lives(queue: Queue, row: str) -> None:
    with VideoRepository(queue) as repository:
        assert repository.try_claim_video(row, "w1", lease_seconds=3)
        first = queue.get(row)
        assert first.leased_until is not None
        end = first.leased_until
        until(lambda: queue.store.now() > end + timedelta(seconds=1), "the end of the first lease")
        now = queue.get(row)
        assert (now.leased_by, now.token) == ("w1", first.token)
        assert now.leased_until is not None
        assert now.leased_until > end
        assert repository.complete_video(row, LADDER)


_STALE = """
import sys
from video_encoder import VideoRepository
from video_encoder.ladder import Ladder
repository = VideoRepository()
print(repository.try_claim_video("1", "frozen", lease_seconds=2), flush=True)
sys.stdin.readline()
print(repository.complete_video("1", Ladder("hls/stale/", [], 1.0, True, {})), repository.fail_video("1", "stale"), flush=True)
"""


def freeze(pid: int, database: Path) -> None:
    """Stop a child process at a moment when it does not hold the write lock of the database, because this process does."""
    with contextlib.closing(sqlite3.connect(database, timeout=PATIENCE, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        os.kill(pid, signal.SIGSTOP)
        os.waitpid(pid, os.WUNTRACED)  # until its last thread has stopped: on a busy machine they run on for a while
        connection.execute("ROLLBACK")


@pytest.mark.faults
@pytest.mark.contract("complete and fail are fenced.")
def test_a_process_that_lost_its_claim_can_neither_complete_nor_fail(queue: Queue, row: str, tmp_path: Path) -> None:
    frozen = subprocess.Popen([sys.executable, "-c", _STALE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert frozen.stdin is not None
    assert frozen.stdout is not None
    try:
        assert frozen.stdout.readline() == "True\n"
        freeze(frozen.pid, tmp_path / "encoder.db")
        with VideoRepository(queue) as repository:
            until(lambda: repository.try_claim_video(row, "next", lease_seconds=2), "the end of the frozen lease")
            os.kill(frozen.pid, signal.SIGCONT)
            frozen.stdin.write("\n")
            frozen.stdin.flush()
            assert frozen.stdout.readline() == "False False\n"
            assert (queue.get(row).leased_by, queue.get(row).status) == ("next", "processing")
    finally:
        frozen.kill()
        frozen.communicate()


@pytest.mark.contract("Worker ids are not reused: one id per process start.")
def test_each_start_of_a_process_has_an_id_of_its_own(home: Path) -> None:
    program = "from video_encoder.repository import new_worker_id; print(new_worker_id())"
    other = subprocess.check_output([sys.executable, "-c", program], text=True).strip()
    assert other
    assert other != new_worker_id()
