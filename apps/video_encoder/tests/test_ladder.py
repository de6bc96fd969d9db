"""One upload on each store, encoded once: the ladder, and what became of the raw object and the message."""

import contextlib
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from apps.video_encoder.tests.kit import encoded_once, encoder_at, reading, work
from onerow import Task
from tests.servers.postgres import Databases
from tests.servers.sqs import SqsServer
from video_encoder import upload_file
from video_encoder.bucket import Bucket
from video_encoder.ladder import Ladder
from video_encoder.probing import Media, probe
from video_encoder.settings import Settings


class Encoded(NamedTuple):
    """The task, the stored files, and what boto3 saw on the way."""

    task: Task
    again: Task  # after delete_raw ran once more
    sizes: dict[str, int]
    fallback: Media
    log: list[str]
    raw: list[list[str]]  # keys after the upload, after the work
    messages: list[tuple[int, int]]  # visible and hidden: after the upload, after the receive


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def encoded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, sqs_server: SqsServer, clip: Path
) -> Encoded:
    folder = tmp_path_factory.mktemp("ladder")
    with contextlib.ExitStack() as stack:
        store: dict[str, str] = {}
        if request.param == "postgres":
            server: Databases = request.getfixturevalue("postgres_server")
            store["ENCODER_STORE"] = server.fresh_database()
            stack.callback(server.drop_database, store["ENCODER_STORE"])
        _, queue, aws = stack.enter_context(encoder_at(folder, sqs_server, **store))
        assert upload_file(clip, "v1").status == "waiting"
        raw, messages = [aws.keys("raw/")], [aws.counts()]
        with reading(queue, "fast") as reader:
            reader.receive()
        messages.append(aws.counts())
        work(queue)
        raw.append(aws.keys("raw/"))
        task, bucket = queue.get("v1"), Bucket(Settings.of_environment())
        fallback = probe(bucket.fetch("hls/v1/fallback.mp4", folder / "fallback.mp4"))
        queue.replay("v1", "delete_raw")
        work(queue)
        log = [line.text for line in queue.logs("v1").lines]
        return Encoded(task, queue.get("v1"), bucket.sizes("hls/v1/"), fallback, log, raw, messages)


@pytest.mark.contract(
    "A real ffmpeg encode to HLS: master playlist, three renditions, thumbnails, poster, with progress."
)
def test_an_upload_becomes_a_ladder_with_thumbnails_and_a_poster(encoded: Encoded) -> None:
    encoded_once(encoded.task)
    for name in ("master.m3u8", "poster.jpg", "thumbnails.jpg", "thumbnails.vtt", "fallback.mp4"):
        assert encoded.sizes[name] > 20
    assert [step["name"] for step in encoded.task.results["encode"]["renditions"]] == ["90p", "60p", "30p"]
    assert sum(name.endswith("/index.m3u8") for name in encoded.sizes) == 3
    assert sum(name.endswith(".m4s") for name in encoded.sizes) == encoded.task.results["check"] == 3
    assert encoded.sizes == msgspec.convert(encoded.task.results["encode"], Ladder).sizes
    seen = encoded.fallback
    assert (seen.height, seen.video, seen.audio, round(seen.seconds)) == (60, "h264", "aac", 2)
    assert "160x90, 2 s, h264, sound: aac" in encoded.log


@pytest.mark.contract("SQS and S3 (R2) protocols through boto3.")
def test_object_and_message_are_those_that_boto3_sees(encoded: Encoded) -> None:
    assert encoded.raw[0] == ["raw/v1/시험 방송.mp4"]
    assert encoded.messages == [(1, 0), (0, 0)]
    assert len(encoded.sizes) > 8


@pytest.mark.contract("The raw object is deleted after success, idempotently.")
def test_the_raw_object_is_deleted_and_deleting_it_again_succeeds(encoded: Encoded) -> None:
    assert [len(keys) for keys in encoded.raw] == [1, 0]
    assert (encoded.again.status, encoded.again.error) == ("completed", None)
    assert encoded.again.generation == encoded.task.generation + 1
