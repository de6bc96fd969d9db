"""A worker killed with kill -9 in each phase of one video, once; what became of the video."""

import contextlib
from pathlib import Path
from typing import NamedTuple

import pytest

from apps.video_encoder.tests.kit import PATIENCE, becomes, encoded_once, encoder_at, until, work, workers
from apps.video_encoder.tests.s3_shim import S3Shim
from onerow import Task
from tests.servers.sqs import SqsServer
from video_encoder import VideoStatus, find_video, upload_file

# The workers are started one after the other, which takes long on a loaded machine.
pytestmark = pytest.mark.faults


class Killed(NamedTuple):
    """The video at its end, and what was seen on the way."""

    task: Task
    held_by: list[str | None]  # by the worker in each phase
    encoded: int  # how often the master playlist was stored
    deleted: int  # how often the raw object was deleted
    stored_at_first_kill: list[str]
    raw_at_second_kill: list[str]
    raw: list[str]
    ladder: list[str]
    messages: tuple[int, int]
    left: list[Path]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, sqs_server: SqsServer, long_clip: Path) -> Killed:
    shim = S3Shim(sqs_server.url)
    with (
        contextlib.closing(shim) as s3,
        encoder_at(tmp_path_factory.mktemp("killed"), sqs_server, ENCODER_S3_ENDPOINT=shim.url) as (home, queue, aws),
        workers(home) as encoders,
    ):
        upload_file(long_clip, "v1")
        held_by = []
        encoders.start()
        becomes("v1", VideoStatus.PROCESSING)
        for process in until(lambda: encoders.living("index.m3u8"), "ffmpeg"):
            process.suspend()  # so that it can't end before the kill
        held_by.append(find_video("v1").leased_by)
        encoders.kill()  # encode: ffmpeg runs
        until(lambda: not encoders.living("index.m3u8"), "the end of its ffmpeg")
        stored = aws.keys("hls/")

        s3.hang_on = ("GET", "/hls/v1/master.m3u8")
        encoders.start()
        assert s3.hung.wait(PATIENCE), encoders.said()
        s3.hung.clear()
        held_by.append(find_video("v1").leased_by)
        assert queue.get("v1").phase == "check"
        encoders.kill()  # check: the playlist has not arrived
        raw = aws.keys("raw/")

        s3.hang_on = ("DELETE", "/raw/v1/")
        encoders.start()
        assert s3.hung.wait(PATIENCE), encoders.said()
        held_by.append(find_video("v1").leased_by)
        assert (queue.get("v1").phase, find_video("v1").status) == ("delete_raw", VideoStatus.READY)
        encoders.kill()  # delete_raw: the object is gone, and its worker never heard of it

        def is_done() -> bool:
            work(queue)
            return queue.get("v1").ended

        until(is_done, "the end")
        return Killed(
            queue.get("v1"), held_by, s3.made("PUT", "/hls/v1/master.m3u8"), s3.made("DELETE", "/raw/v1/"), stored, raw,
            aws.keys("raw/"), aws.keys("hls/v1/"), aws.counts(), list((home / "work").iterdir()),
        )  # fmt: skip


@pytest.mark.contract(
    "A worker killed with kill -9 in any phase loses nothing, and does nothing twice that its target can deduplicate."
)
def test_a_worker_killed_in_each_phase_loses_and_repeats_nothing(killed: Killed) -> None:
    encoded_once(killed.task)
    rescued = [entry.phase for entry in killed.task.history if entry.what == "rescued"]
    assert rescued == ["encode", "check", "delete_raw"]
    assert killed.stored_at_first_kill == []  # half a ladder is never stored
    assert killed.encoded == 1
    assert len(killed.raw_at_second_kill) == 1  # kept until the ladder has been checked
    assert (killed.deleted, killed.raw) == (2, [])
    assert sorted(killed.ladder) == sorted("hls/v1/" + name for name in killed.task.results["encode"]["sizes"])
    assert killed.messages == (0, 0)


def test_what_killed_attempts_left_on_the_disk_is_removed(killed: Killed) -> None:
    assert killed.left == []


@pytest.mark.contract("leased_until is read: the video of a dead worker is encoded by another.")
def test_the_video_of_a_dead_worker_is_encoded_by_another(killed: Killed) -> None:
    (encoded_by,) = (entry.by for entry in killed.task.history if (entry.phase, entry.what) == ("encode", "advanced"))
    assert encoded_by == killed.held_by[1]
    assert encoded_by != killed.held_by[0]


@pytest.mark.contract("Worker ids are not reused: one id per process start.")
def test_each_worker_that_was_started_has_an_id_of_its_own(killed: Killed) -> None:
    assert None not in killed.held_by
    assert len(set(killed.held_by)) == 3
