"""Uploads and messages: files, presigned URLs, the bucket's events; the ladder; settings; the command line."""

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from apps.video_encoder.tests.kit import Cloud, reading, work
from onerow import BadInput, Permanent, Queue
from onerow.inboxes import Addition, AddTasks, BadMessage, Message
from video_encoder import (
    VideoRepository,
    VideoStatus,
    create_upload,
    find_video,
    list_videos,
    pipeline,
    upload_file,
    uploaded,
)
from video_encoder.bucket import Bucket
from video_encoder.checking import check_ladder
from video_encoder.cli import main
from video_encoder.ladder import Ladder, encode, renditions
from video_encoder.messages import read_message
from video_encoder.offline import cloud
from video_encoder.probing import Media, probe_upload
from video_encoder.settings import Settings
from video_encoder.work_folder import work_folder


def encoder(*words: str) -> Result:
    return CliRunner().invoke(main, words, catch_exceptions=False)


@pytest.mark.contract("The stored ladder is checked by ffprobe before the video is READY.")
def test_a_ladder_that_can_not_be_played_is_never_ready(queue: Queue, aws: Cloud, clip: Path, tmp_path: Path) -> None:
    upload_file(clip, "v1")
    work(queue)
    ladder = msgspec.convert(queue.get("v1").results["encode"], Ladder)
    bucket = Bucket(Settings.of_environment())
    assert check_ladder(ladder, bucket, tmp_path) == 3
    poster = aws.s3.get_object(Bucket="videos", Key="hls/v1/poster.jpg")["Body"].read()
    aws.s3.put_object(Bucket="videos", Key="hls/v1/poster.jpg", Body=b"\0" * len(poster))
    with pytest.raises(Permanent, match=r"poster\.jpg"):
        check_ladder(ladder, bucket, tmp_path)
    aws.s3.put_object(Bucket="videos", Key="hls/v1/poster.jpg", Body=poster)
    size = ladder.sizes["60p/00000.m4s"]
    aws.s3.put_object(Bucket="videos", Key="hls/v1/60p/00000.m4s", Body=b"\0" * size)
    with pytest.raises(Permanent, match=r"60p/00000\.m4s"):
        check_ladder(ladder, bucket, tmp_path)
    aws.s3.delete_object(Bucket="videos", Key="hls/v1/60p/00000.m4s")
    with pytest.raises(Permanent, match="has 0 bytes"):
        check_ladder(ladder, bucket, tmp_path)
    upload_file(clip, "v2")
    with VideoRepository(queue) as repository:
        assert repository.try_claim_video("v2", "w1")
        assert repository.complete_video("v2", msgspec.structs.replace(ladder, prefix="hls/v2/"))
    work(queue)
    assert find_video("v2").status is VideoStatus.FAILED
    assert len(aws.keys("raw/v2/")) == 1  # kept: it can be encoded again


@pytest.fixture
def events(home: Path, sqs_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket that reports its new objects to the queue."""
    monkeypatch.setenv("ENCODER_BUCKET", cloud.create(sqs_endpoint, "events", events=True)["ENCODER_BUCKET"])


def put(url: str, body: bytes) -> int:
    """Upload with nothing but the URL; return the status of the answer."""
    request = urllib.request.Request(url, body, {"Content-Type": "video/mp4"}, method="PUT")
    with urllib.request.urlopen(request, timeout=900) as answer:
        return int(answer.status)


@pytest.mark.contract("A presigned URL takes an upload without credentials.")
def test_a_presigned_url_takes_an_upload_without_credentials(queue: Queue, aws: Cloud) -> None:
    made = create_upload("../휴가 2026.mp4", "42")
    assert made.key == "raw/42/휴가 2026.mp4"
    assert put(made.url, b"a video") == 200
    assert aws.s3.get_object(Bucket="videos", Key=made.key)["Body"].read() == b"a video"
    assert uploaded("42").task_id == "42"
    assert find_video("42").status is VideoStatus.UPLOADED


@pytest.mark.usefixtures("events")
@pytest.mark.contract("A bucket's own event is the message.")
def test_the_event_of_the_bucket_makes_the_row_and_only_one(queue: Queue, aws: Cloud, clip: Path) -> None:
    put(create_upload("휴가 2026.mp4", "42").url, clip.read_bytes())
    with reading(queue, "fast") as reader:
        reader.receive()
        assert find_video("42").status is VideoStatus.UPLOADED
        assert uploaded("42").task_id == "42"  # said too: the same row
        work(queue)
        reader.receive()
    assert [video.video_id for video in list_videos()] == ["42"]
    assert (find_video("42").name, find_video("42").status) == ("휴가 2026.mp4", VideoStatus.READY)
    assert (aws.counts(), aws.counts(aws.dead)) == ((0, 0), (0, 0))


def record(name: str = "ObjectCreated:Put", key: str = "raw/1/a+b%C3%A9.mp4") -> dict[str, Any]:
    """Return an object in an event notification of S3."""
    return {"eventSource": "aws:s3", "eventName": name, "s3": {"bucket": {"name": "b"}, "object": {"key": key}}}


def message(body: object) -> Message:
    return Message("m", json.dumps(body))


def test_events_of_new_uploads_add_rows_and_others_add_nothing() -> None:
    event = {"Records": [record(), record("ObjectRemoved:Delete"), record(key="hls/1/master.m3u8")]}
    uploaded_once = AddTasks("videos", (Addition({"key": "raw/1/a bé.mp4", "name": "a bé.mp4"}, task_id="1"),))
    assert read_message(message(event)) == uploaded_once
    assert read_message(message({"Type": "Notification", "Message": json.dumps(event)})) == uploaded_once  # by SNS
    assert read_message(message({"Service": "Amazon S3", "Event": "s3:TestEvent"})) == AddTasks("videos", ())


@pytest.mark.parametrize(
    "body",
    [
        [], {}, {"Records": 3}, {"Records": [{}]}, {"Records": [record(key="raw/a.mp4")]}, {"video_id": True},
        {"Records": [{"eventName": "ObjectCreated:Put", "s3": {"object": {}}}]}, {"Type": "Notification", "Message": "hi"},
    ],
)  # fmt: skip
def test_messages_that_can_not_be_read_are_bad(body: object) -> None:
    with pytest.raises(BadMessage):
        read_message(message(body))


def test_an_upload_while_sqs_is_away_has_a_row_and_says_that_no_message_was_sent(
    queue: Queue, clip: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ENCODER_QUEUE_URL", "http://127.0.0.1:9/123456789012/videos")
    assert upload_file(clip, "v1").task_id == "v1"
    assert find_video("v1").status is VideoStatus.UPLOADED
    assert "video v1: no message was sent" in caplog.text


@pytest.mark.contract("UPLOADED, PROCESSING, READY, FAILED, FAILED_TRANSIENT at the edge.")
def test_the_words_at_the_edge(queue: Queue, aws: Cloud, clip: Path) -> None:
    ids = ["uploaded", "processing", "ready", "failed", "transient"]
    for video_id in ids:
        upload_file(clip, video_id)
    with VideoRepository(queue) as repository:
        for video_id in ("processing", "failed", "transient"):
            assert repository.try_claim_video(video_id, "w1")
        repository.fail_video("failed", "no picture in it", transient=False)
        repository.fail_video("transient", ConnectionError("reset"))
        queue.finish("ready")
        words = ["UPLOADED", "PROCESSING", "READY", "FAILED", "FAILED_TRANSIENT"]
        assert [str(find_video(video_id).status) for video_id in ids] == words
        for video_id, word in zip(ids, words, strict=True):
            assert [video.video_id for video in list_videos(word)] == [video_id]
            assert encoder("list", word).output.split()[:2] == [word, video_id]


@pytest.mark.contract(
    "A real ffmpeg encode to HLS: master playlist, three renditions, thumbnails, poster, with progress."
)
def test_an_encode_reports_its_progress_in_seconds_of_the_video(clip: Path, tmp_path: Path) -> None:
    reported: list[float] = []
    media = probe_upload(clip, clip.name)
    steps = encode(clip, media, (72, 60, 48), tmp_path / "hls", reported.append)
    assert [step.name for step in steps] == ["72p", "60p", "48p"]
    assert reported == sorted(reported)
    assert round(reported[-1]) == round(media.seconds)


@pytest.mark.contract(
    "A real ffmpeg encode to HLS: master playlist, three renditions, thumbnails, poster, with progress."
)
def test_the_task_of_a_video_has_that_progress(queue: Queue, aws: Cloud, clip: Path) -> None:
    seen: list[tuple[float, float, str]] = []
    ctx: Any = SimpleNamespace(
        task_id="v1", log=lambda text: None, check=lambda: None, track=lambda names, note: names,
        progress=lambda done, total, note: seen.append((done, total, note)),
    )  # fmt: skip
    pipeline.encode(pipeline.Job(aws.put_raw("v1", clip), clip.name), ctx)
    assert seen[-1] == (2.0, 2.0, "seconds")


def test_a_ladder_has_three_sizes_and_is_never_larger_than_its_source() -> None:
    heights = (720, 480, 240)
    wide, tall, small = (Media(*size, 1.0, "h264", "") for size in ((1920, 1080), (1080, 1920), (160, 90)))
    assert [(step.width, step.height) for step in renditions(wide, heights)] == [(1280, 720), (854, 480), (426, 240)]
    assert [(step.width, step.height) for step in renditions(tall, heights)] == [(720, 1280), (480, 854), (240, 426)]
    assert [step.name for step in renditions(small, heights)] == ["90p", "60p", "30p"]


def test_an_upload_that_is_too_large_is_refused(queue: Queue, aws: Cloud, clip: Path) -> None:
    upload_file(clip, "v1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENCODER_MAX_SIZE", "1KB")
        work(queue)
    assert find_video("v1").status is VideoStatus.FAILED
    assert "ENCODER_MAX_SIZE allows 1,000" in (find_video("v1").error or "")


def test_a_playlist_is_no_upload(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    playlist = tmp_path / "a.mp4"
    playlist.write_text(f"#EXTM3U\n#EXTINF:1,\nfile://{tmp_path}/secret\n#EXT-X-ENDLIST\n")
    with pytest.raises(Permanent, match=r"a\.mp4 is not a video"):
        probe_upload(playlist, "a.mp4")


def test_a_folder_of_a_living_attempt_is_kept_and_that_of_a_dead_one_removed(tmp_path: Path) -> None:
    (tmp_path / "dead-1").mkdir()
    with work_folder(tmp_path, "v1") as first, work_folder(tmp_path, "v2") as second:
        assert sorted(tmp_path.iterdir()) == sorted([first, second])
    assert list(tmp_path.iterdir()) == []


WRONG = {
    "ENCODER_MODE": "slow", "ENCODER_HEIGHTS": "240,480,720", "ENCODER_MAX_SIZE": "big", "ENCODER_S3_ENDPOINT": "r2", "ENCODER_QUEUE_URL": "videos",
    "ENCODER_TIMEOUT": "long", "ENCODER_LEASE": "1ms", "ENCODER_VISIBILITY": "24h", "ENCODER_RETRY_WAIT": "-1s",
}  # fmt: skip


@pytest.mark.parametrize("variable", WRONG)
def test_a_wrong_variable_is_named(variable: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, WRONG[variable])
    with pytest.raises(BadInput, match=variable):
        Settings.of_environment()
    answer = encoder("list")
    assert answer.exit_code == 1
    assert answer.output.startswith(f"Error: {variable}")


def test_a_command_of_a_new_process_names_a_wrong_variable_without_a_traceback(home: Path) -> None:
    environment = os.environ | {"ENCODER_TIMEOUT": "long"}
    done = subprocess.run(
        [sys.executable, "-m", "video_encoder", "run"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ENCODER_TIMEOUT: can't read the duration 'long'")


def test_the_command_line_uploads_lists_and_says_what_is_wrong(
    queue: Queue, aws: Cloud, clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert encoder("upload", str(clip), "--id", "v1").output == "v1\n"
    assert json.loads(encoder("list", "--json").output)["status"] == "UPLOADED"
    assert json.loads(encoder("presign", "a.mp4", "--id", "v2").output)["video_id"] == "v2"
    for words, says in {
        ("uploaded", "v2"): "nothing was uploaded", ("upload", str(clip), "--id", "../x"): "not the id of a video",
        ("presign", "/"): "not the name of a file",
    }.items():  # fmt: skip
        answer = encoder(*words)
        assert (answer.exit_code, says in answer.output) == (1, True), answer.output
    assert "no video is READY" in encoder("list", "READY").output
    answer = encoder("page", str(clip / "site"))
    assert (answer.exit_code, "Not a directory" in answer.output) == (1, True), answer.output
    monkeypatch.setenv("ENCODER_BUCKET", "absent")
    answer = encoder("upload", str(clip))
    assert (answer.exit_code, "does not exist" in answer.output) == (1, True), answer.output
    monkeypatch.delenv("ENCODER_BUCKET")
    assert "ENCODER_BUCKET is not set" in encoder("presign", "a.mp4").output


def test_an_upload_without_a_queue_is_refused_before_the_file_is_sent(
    home: Path, aws: Cloud, clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ENCODER_QUEUE_URL")
    assert "ENCODER_QUEUE_URL is not set" in encoder("upload", str(clip)).output
    assert aws.keys() == []
