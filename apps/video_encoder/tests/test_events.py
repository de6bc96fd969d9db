"""One worker, run once: its log events, a failure that the engine kicks, a video that is dead."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from apps.video_encoder.tests.kit import becomes, encoded_once, encoder_at, ended, until, workers
from onerow import Task
from tests.servers.sqs import SqsServer
from video_encoder import VideoStatus, find_video, upload_file, videos
from video_encoder.pipeline import Job


class Day(NamedTuple):
    """The tasks at their ends, the worker's log, and the messages that are left."""

    ready: Task
    dead: Task
    dead_status: VideoStatus
    late: Task
    events: list[dict[str, Any]]
    messages: tuple[int, int]
    dead_messages: tuple[int, int]

    def lines_of(self, event: str) -> list[dict[str, Any]]:
        """Return the lines of a log event."""
        return [line for line in self.events if line.get("event") == event]


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory, sqs_server: SqsServer, clip: Path) -> Day:
    folder = tmp_path_factory.mktemp("events")
    (folder / "note.mp4").write_text("no video at all")
    with encoder_at(folder, sqs_server) as (home, queue, aws), workers(home) as encoders:
        # A row whose object is late: its attempts fail until the object is there, and nothing but the engine kicks it.
        queue.publish(*queue.pipelines.values())
        queue.add(videos, Job(f"raw/late/{clip.name}", clip.name), task_id="late")
        encoders.start("--log-format", "json")
        becomes("late", VideoStatus.FAILED_TRANSIENT)
        aws.put_raw("late", clip)
        upload_file(clip, "v1")
        upload_file(folder / "note.mp4", "dead")
        ready, dead, late = ended("v1"), ended("dead"), ended("late")
        aws.send({"video_id": "v1"})
        until(lambda: "VIDEO_ALREADY_READY_SKIP" in encoders.said(), "the log event")
        aws.send({"video_id": "dead"})
        until(lambda: encoders.said().count("SQS_MESSAGE_RECEIVED: ") >= 4, "the next message")
        until(lambda: aws.counts() == (0, 0), "the empty queue")
        events = [json.loads(line) for line in encoders.said().splitlines() if line.startswith("{")]
        return Day(ready, dead, find_video("dead").status, late, events, aws.counts(), aws.counts(aws.dead))


@pytest.mark.contract("Log events SQS_MESSAGE_RECEIVED and SQS_JOB_COMPLETED.")
def test_a_message_and_the_end_of_its_job_are_logged(day: Day) -> None:
    encoded_once(day.ready)
    assert [line["task_id"] for line in day.lines_of("SQS_JOB_COMPLETED")].count("v1") == 1
    assert len({line["message_id"] for line in day.lines_of("SQS_MESSAGE_RECEIVED")}) == 4


@pytest.mark.contract("Log event VIDEO_ALREADY_READY_SKIP: the message is deleted, and the next one comes.")
def test_a_message_for_a_ready_video_is_logged_and_deleted_and_the_next_one_comes(day: Day) -> None:
    (skipped,) = day.lines_of("VIDEO_ALREADY_READY_SKIP")
    assert skipped["task_id"] == "v1"
    later = [line for line in day.lines_of("SQS_MESSAGE_RECEIVED") if line["time"] > skipped["time"]]
    assert len(later) == 1
    assert day.messages == (0, 0)


@pytest.mark.contract("A transient failure is kicked again by the engine itself.")
def test_a_video_that_failed_for_a_while_is_encoded_by_a_later_attempt(day: Day) -> None:
    encoded_once(day.late)
    failures = [entry for entry in day.late.history if entry.what == "failed"]
    assert failures
    assert {entry.phase for entry in failures} == {"encode"}


@pytest.mark.contract("The dead-letter queue goes blind: attempts and the dead live in the database.")
def test_a_dead_video_is_in_the_database_and_not_in_the_dead_letter_queue(day: Day) -> None:
    assert (day.dead.status, day.dead.error_class, day.dead.attempt) == ("failed", "permanent", 1)
    assert "note.mp4 is not a video" in (day.dead.error or "")
    assert day.dead_status is VideoStatus.FAILED
    assert day.dead_messages == (0, 0)  # only messages that can't be read go there
