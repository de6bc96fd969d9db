"""A crash between delete and claim, and a rolling update with kill -9: no video is lost, and none is encoded twice."""

from pathlib import Path

import pytest

from apps.video_encoder.tests.kit import Cloud, encoded_once, ended, reading, until, work, workers
from onerow import Queue
from video_encoder import VideoStatus, find_video, upload_file
from video_encoder.offline import clips

# Each starts several workers one after the other, which takes long on a loaded machine.
pytestmark = [pytest.mark.faults]


@pytest.mark.contract("A crash between delete and claim must not lose the video.")
def test_a_crash_between_delete_and_claim_loses_nothing(queue: Queue, aws: Cloud, clip: Path) -> None:
    upload_file(clip, "v1")
    with reading(queue, "fast") as reader:
        reader.receive()  # deletes the message; this process claims nothing, as if it died here
    assert (aws.counts(), find_video("v1").status) == ((0, 0), VideoStatus.UPLOADED)
    work(queue)
    encoded_once(queue.get("v1"))


def rolling_update(home: Path, aws: Cloud, clip: Path, count: int) -> None:
    ids = [f"v{number}" for number in range(count)]
    with workers(home) as encoders:
        encoders.start(ENCODER_MODE="classic")
        for video_id in ids[: count // 2]:
            upload_file(clip, video_id)
        encoders.start(ENCODER_MODE="fast")
        for video_id in ids[count // 2 :]:
            upload_file(clip, video_id)
            aws.send({"video_id": video_id})  # SQS may deliver twice
        encoders.kill(0)  # the old one goes, in the midst of its work
        for video_id in ids:
            encoded_once(ended(video_id))
    assert aws.keys("raw/") == []


@pytest.mark.contract("Workers of classic and fast mode on one queue (a rolling update) lose and double nothing.")
def test_a_rolling_update_loses_and_doubles_nothing(queue: Queue, aws: Cloud, home: Path, clip: Path) -> None:
    rolling_update(home, aws, clip, 3)
    assert aws.counts(aws.dead) == (0, 0)


@pytest.mark.slow
def test_a_long_rolling_update_ends_with_an_empty_queue(queue: Queue, aws: Cloud, home: Path, tmp_path: Path) -> None:
    rolling_update(home, aws, clips.draw(tmp_path / "a.mp4", seconds=1), 16)
    with workers(home) as encoders:
        encoders.start(ENCODER_MODE="fast")
        until(lambda: aws.counts() == (0, 0), "the empty queue")
    assert aws.counts(aws.dead) == (0, 0)
