"""The result of each message, and what classic mode does with it."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from apps.video_encoder.tests.kit import Cloud, Reader, encoded_once, reading, work
from onerow import Pipeline, Queue
from tests.inboxes.sqs_shim import SqsShim
from video_encoder import VideoRepository, find_video, list_videos, open_queue, upload_file, videos
from video_encoder.ladder import Ladder
from video_encoder.pipeline import Job
from video_encoder.results import Results


@pytest.fixture
def shim(aws: Cloud, sqs_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqsShim]:
    """Records the calls to SQS of the encoder."""
    shim = SqsShim(sqs_endpoint)
    monkeypatch.setenv("ENCODER_QUEUE_URL", aws.url.replace(sqs_endpoint, shim.url))
    yield shim
    shim.close()


def add(queue: Queue, video_id: str = "v1") -> None:
    """Add a row without an object."""
    queue.add(videos, Job(f"raw/{video_id}/a.mp4", "a.mp4"), task_id=video_id)


def hidden_for(shim: SqsShim) -> list[int]:
    """Return the seconds for which messages were hidden."""
    calls = shim.made("ChangeMessageVisibilityBatch")
    return [entry["VisibilityTimeout"] for call in calls for entry in call["Entries"]]


@pytest.mark.parametrize("mode", ["fast", "classic"])
@pytest.mark.contract("A message's result is `ok` when the video was encoded.")
def test_ok_when_the_video_was_encoded(queue: Queue, aws: Cloud, clip: Path, mode: str) -> None:
    upload_file(clip, "v1")
    with reading(queue, mode) as reader:
        reader.receive()
        assert aws.counts() == ((0, 0) if mode == "fast" else (0, 1))  # classic mode holds it until the work is done
        work(queue)
        reader.look()
        assert reader.results() == {"ok": 1}
    encoded_once(queue.get("v1"))
    assert aws.counts() == (0, 0)


def test_on_postgresql_too(aws: Cloud, clip: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENCODER_STORE", postgres_url)
    with closing(open_queue()) as queue, reading(queue, "fast") as reader:
        upload_file(clip, "v1")
        reader.receive()
        work(queue)
        assert reader.results() == {"ok": 1}
        encoded_once(queue.get("v1"))
        assert [video.video_id for video in list_videos("READY")] == ["v1"]


@pytest.mark.parametrize("mode", ["fast", "classic"])
@pytest.mark.contract("A message's result is `skip:cancel` when the video was cancelled.")
def test_skip_cancel_when_the_video_was_cancelled(queue: Queue, aws: Cloud, mode: str) -> None:
    add(queue)
    queue.cancel("v1")
    aws.send({"video_id": "v1"})
    with reading(queue, mode) as reader:
        reader.receive()
        assert reader.results() == {"skip:cancel": 1}
    assert aws.counts() == (0, 0)


@pytest.mark.contract("A message's result is `skip:claim` when the claim was lost after the ACK.")
def test_skip_claim_when_another_worker_has_the_video(queue: Queue, aws: Cloud) -> None:
    add(queue)
    aws.send({"video_id": "v1"})
    with VideoRepository(queue) as other, reading(queue, "fast") as reader:
        assert other.try_claim_video("v1", "other")
        reader.receive()
        assert reader.results() == {"skip:claim": 1}
        assert queue.get("v1").leased_by == "other"
    assert aws.counts() == (0, 0)


@pytest.mark.contract("A message's result is `failed` when the work has failed.")
def test_failed_when_the_work_has_failed(queue: Queue, aws: Cloud) -> None:
    with VideoRepository(queue) as other, reading(queue, "classic") as reader:
        fail(queue, aws, other, reader)
        assert reader.results() == {"failed": 1}
    assert find_video("v1").status == "FAILED"


@pytest.mark.contract("In classic mode a message's result is `skip:mark_processing` when the row isn't waiting.")
def test_skip_mark_processing_when_the_row_is_not_waiting(queue: Queue, aws: Cloud) -> None:
    add(queue)
    queue.fail("v1", "no picture in it")
    aws.send({"video_id": "v1"})
    with reading(queue, "classic") as reader:
        reader.receive()
        assert reader.results() == {"skip:mark_processing": 1}


@pytest.mark.contract("In classic mode a message's result is `lock_fail` when a live lease is elsewhere.")
def test_lock_fail_when_a_live_lease_is_elsewhere(queue: Queue, aws: Cloud) -> None:
    add(queue)
    aws.send({"video_id": "v1"})
    with VideoRepository(queue) as other, reading(queue, "classic") as reader:
        assert other.try_claim_video("v1", "other")
        reader.receive()
        assert reader.results() == {"lock_fail": 1}


def test_in_fast_mode_the_worker_that_ends_a_video_knows_the_result(
    queue: Queue, aws: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    add(queue)
    aws.send({"video_id": "v1"})
    other = Queue(queue.store).serve(videos)
    elsewhere = Results(other, "fast")
    with caplog.at_level("INFO", "video_encoder"), reading(queue, "fast") as reader:
        reader.receive()
        for phase, result in {"encode": Ladder("hls/v1/", [], 2.0, True, {}), "check": 3, "delete_raw": None}.items():
            other.claim(videos, phase)[0].complete(result)
        assert (reader.results(), elsewhere.counts) == ({}, {"ok": 1})
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("SQS_JOB_COMPLETED")]
    assert lines == ["SQS_JOB_COMPLETED: video v1"]


def test_a_message_for_a_video_whose_raw_object_is_still_to_be_deleted_finds_it_ready(
    queue: Queue, aws: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    add(queue)
    with queue.claim(videos) as leases:
        leases[0].complete(Ladder("hls/v1/", [], 2.0, True, {}))
    with queue.claim(videos, "check") as leases:
        leases[0].complete(3)
    aws.send({"video_id": "v1"})
    with caplog.at_level("INFO", "video_encoder"), reading(queue, "fast") as reader:
        reader.receive()
        assert reader.results() == {"ok": 1}
    assert "VIDEO_ALREADY_READY_SKIP: video v1" in caplog.text


def test_classic_mode_gives_back_the_message_of_a_video_whose_raw_object_another_worker_deletes(
    queue: Queue, aws: Cloud
) -> None:
    add(queue)
    for phase, result in {"encode": Ladder("hls/v1/", [], 2.0, True, {}), "check": 3}.items():
        queue.claim(videos, phase)[0].complete(result)
    aws.send({"video_id": "v1"})
    with queue.claim(videos, "delete_raw"), reading(queue, "classic") as reader:
        reader.receive()
        assert reader.results() == {"lock_fail": 1}
    assert aws.counts() == (0, 1)


def test_tasks_of_other_pipelines_have_no_result(queue: Queue) -> None:
    other = Pipeline("thumbnails")

    @other.phase
    def draw(job: Any) -> None: ...

    queue.publish(other)
    results = Results(queue, "fast")
    queue.add(other, 1)
    queue.claim(other)[0].complete()
    assert results.counts == {}


# ── what becomes of the message ──


def fail(queue: Queue, aws: Cloud, other: VideoRepository, reader: Reader) -> None:
    """Receive a message, and let the work on its video fail elsewhere."""
    add(queue)
    aws.send({"video_id": "v1"})
    reader.receive()
    assert other.try_claim_video("v1", "other")
    assert other.fail_video("v1", "no picture in it", transient=False)
    reader.look()


@pytest.mark.parametrize("result", ["ok", "skip:cancel"])
@pytest.mark.contract("Classic mode deletes on ok and skip:cancel.")
def test_classic_mode_deletes_the_message_when_the_work_has_ended(
    queue: Queue, aws: Cloud, shim: SqsShim, result: str
) -> None:
    add(queue)
    aws.send({"video_id": "v1"})
    with reading(queue, "classic") as reader:
        reader.receive()
        reader.look()
        assert (aws.counts(), shim.made("DeleteMessageBatch")) == ((0, 1), [])  # held while the video waits
        if result == "ok":
            queue.finish("v1")
        else:
            queue.cancel("v1")
        reader.look()
        assert reader.results() == {result: 1}
    assert aws.counts() == (0, 0)
    assert len(shim.made("DeleteMessageBatch")) == 1


@pytest.mark.parametrize("result", ["skip:mark_processing", "lock_fail"])
@pytest.mark.contract("Classic mode NACKs by visibility on skip:mark_processing and lock_fail.")
def test_classic_mode_nacks_by_visibility(queue: Queue, aws: Cloud, shim: SqsShim, result: str) -> None:
    add(queue)
    aws.send({"video_id": "v1"})
    with VideoRepository(queue) as other, reading(queue, "classic") as reader:
        assert other.try_claim_video("v1", "other")
        if result == "skip:mark_processing":
            assert other.fail_video("v1", "no picture in it", transient=False)
        reader.receive()
        assert reader.results() == {result: 1}
    assert (aws.counts(), hidden_for(shim)) == ((0, 1), [30])
    assert shim.made("DeleteMessageBatch") == []


@pytest.mark.contract("Classic mode backs off by visibility on failed.")
def test_classic_mode_backs_off_when_the_work_has_failed(queue: Queue, aws: Cloud, shim: SqsShim) -> None:
    with VideoRepository(queue) as other, reading(queue, "classic") as reader:
        fail(queue, aws, other, reader)
    assert aws.counts() == (0, 1)
    assert hidden_for(shim) == [30]  # then 60, 120, … 900 s
    assert shim.made("DeleteMessageBatch") == []


@pytest.mark.contract(
    "Fast mode: receive → parse and validate → the row stands → delete → claim this id → work → complete."
)
def test_fast_mode_deletes_when_the_row_stands_and_claims_after_it(
    queue: Queue, aws: Cloud, shim: SqsShim, clip: Path
) -> None:
    upload_file(clip, "v1")
    aws.send({"video_id": "v2"})  # no row stands yet
    aws.send({"video_id": ["v3"]})  # can't be read
    with reading(queue, "fast") as reader:
        reader.receive()
        assert (queue.get("v1").status, queue.get("v1").attempt) == ("waiting", 0)  # deleted, not claimed yet
        assert aws.counts() == (0, 1)
        assert aws.counts(aws.dead) == (1, 0)
        deleted = len(shim.made("DeleteMessageBatch"))
        work(queue)
        assert reader.results() == {"ok": 1}
    encoded_once(queue.get("v1"))
    assert len(shim.made("DeleteMessageBatch")) == deleted
    assert hidden_for(shim) == [5]  # the message of v2, which may have overtaken its row


@pytest.mark.contract("Fast mode has no visibility extender.")
def test_fast_mode_extends_no_message_while_the_video_is_worked_on(queue: Queue, aws: Cloud, shim: SqsShim) -> None:
    add(queue)
    aws.send({"video_id": "v1"})
    with VideoRepository(queue) as worker, reading(queue, "fast") as reader:
        reader.receive()
        assert aws.counts() == (0, 0)  # before the work begins: there is no message to extend
        assert worker.try_claim_video("v1", "w1")
        reader.look()
        assert worker.complete_video("v1", Ladder("hls/v1/", [], 2.0, True, {}))
        reader.look()
    assert [name for name, _ in shim.calls if name.startswith("ChangeMessageVisibility")] == []
