"""What fails no video: a bucket that is unavailable, that asks for fewer requests, or a full disk."""

import os
from pathlib import Path

import pytest

from apps.video_encoder.tests.kit import Cloud, until, work
from apps.video_encoder.tests.s3_shim import S3Shim
from onerow import Queue
from video_encoder import VideoStatus, find_video, upload_file


@pytest.mark.parametrize("refused", [("PUT", "/hls/v1/master.m3u8"), ("DELETE", "/raw/v1/")])
def test_a_bucket_that_answers_slow_down_costs_no_retry(
    queue: Queue, aws: Cloud, clip: Path, monkeypatch: pytest.MonkeyPatch, refused: tuple[str, str]
) -> None:
    upload_file(clip, "v1")
    aws.s3.put_object(Bucket="videos", Key="hls/v1/90p/00001.m4s", Body=b"of an earlier attempt")
    shim = S3Shim(os.environ["ENCODER_S3_ENDPOINT"])
    try:
        monkeypatch.setenv("ENCODER_S3_ENDPOINT", shim.url)
        shim.refuse = refused
        work(queue)
        held = queue.get("v1")
        assert (held.status, held.retry_count) == ("waiting", 0)
        if refused[0] == "PUT":  # the master playlist is the last object, so that half a ladder can't be played
            names = {key.removeprefix("hls/v1/") for key in aws.keys("hls/v1/")}
            assert names > {"90p/index.m3u8", "60p/index.m3u8", "30p/index.m3u8", "fallback.mp4", "poster.jpg"}
            assert "master.m3u8" not in names
        shim.refuse = None

        def is_done() -> bool:
            work(queue)
            return queue.get("v1").ended

        until(is_done, "the end")
    finally:
        shim.close()
    assert find_video("v1").status is VideoStatus.READY
    sizes = queue.get("v1").results["encode"]["sizes"]
    assert sorted(aws.keys("hls/v1/")) == sorted(f"hls/v1/{name}" for name in sizes)


def test_a_bucket_that_does_not_answer_costs_no_retry_and_is_named(
    queue: Queue, aws: Cloud, clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload_file(clip, "v1")
    monkeypatch.setenv("ENCODER_S3_ENDPOINT", "http://127.0.0.1:1")
    work(queue)
    held = queue.get("v1")
    assert (held.status, held.retry_count) == ("waiting", 0)
    (reason,) = [str(note.body) for note in queue.store.notes("hold")]
    assert "the bucket is unavailable: Could not connect" in reason
