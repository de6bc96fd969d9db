"""The resumable upload, against a fake server that can inject faults."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from apps.video_studio.tests.kit import work
from apps.video_studio.tests.youtube_server import YouTubeServer
from onerow import BadInput, Queue, Task
from video_studio import add_video
from video_studio.publish.youtube import until_quota
from video_studio.settings import Settings

PIECE = 256 * 1024


@pytest.fixture
def film(queue: Queue, youtube: YouTubeServer, home: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    """A task in phase youtube with a film of more than five pieces."""
    for name, value in youtube.environment.items():
        monkeypatch.setenv(name, value)
    task = add_video("<조수> & 달", draw=True, task_id="t1")
    queue.pause("videos", "youtube")
    work()
    ready = queue.get(task.task_id)
    assert (ready.type, ready.status) == ("youtube", "waiting")
    # Larger than a test film, so that the upload needs several pieces.
    file = home / "videos" / ready.results["video"]["file"]
    grown = file.read_bytes() + bytes(5 * PIECE)
    file.write_bytes(grown)
    changed = ready.results_json.replace(f'"size":{ready.results["video"]["size"]}', f'"size":{len(grown)}')
    from onerow.ports import Move

    queue.store.swap([Move(ready, ready.with_changes(queue.store.now(), results_json=changed))])
    queue.resume("videos", "youtube")
    return queue.get(task.task_id)


def attempt(queue: Queue) -> Task:
    """Run one attempt without waiting for a back-off."""
    if queue.get("t1").status == "waiting":
        queue.reschedule("t1", queue.store.now())
    work()
    return queue.get("t1")


def whole(youtube: YouTubeServer, home: Path) -> None:
    """Check that exactly one video was published, byte for byte the film."""
    assert len(youtube.published) == 1
    assert bytes(youtube.published[0].received) == (home / "videos" / "t1-0.mp4").read_bytes()


@pytest.mark.contract("A video is published by the YouTube Data API's resumable upload protocol.")
def test_a_video_is_published_by_the_resumable_upload_protocol(
    queue: Queue, film: Task, youtube: YouTubeServer, home: Path
) -> None:
    done = attempt(queue)
    assert (done.status, done.result) == (
        "completed",
        {"target": "youtube", "id": "v1", "where": "https://youtu.be/v1"},
    )
    whole(youtube, home)
    body = youtube.published[0].body
    assert body["snippet"]["title"].replace(", briefly", "").removeprefix("A short look at ") == "(조수) & 달"
    assert body["status"]["privacyStatus"] == "private"
    size = len(youtube.published[0].received)
    assert youtube.heard[0] == f"bytes */{size}"
    assert youtube.heard[1:3] == [f"bytes 0-{PIECE - 1}/{size}", f"bytes {PIECE}-{2 * PIECE - 1}/{size}"]
    assert (done.progress["total"], done.progress["note"]) == (size, "bytes")
    assert len(youtube.tokens_asked) == 1
    assert "grant_type=refresh_token" in youtube.tokens_asked[0]


@pytest.mark.parametrize("moment, fault", [("take", "drop"), ("send", "500"), ("ask", "503"), ("begin", "502")])
def test_an_upload_that_breaks_off_is_a_network_error_and_goes_on_where_it_was(
    queue: Queue, film: Task, youtube: YouTubeServer, home: Path, moment: str, fault: str
) -> None:
    youtube.faults = [("take", ""), (moment, fault)] if moment == "take" else [(moment, fault)]
    broken = attempt(queue)
    assert (broken.status, broken.type, broken.error_class, broken.retry_count) == ("waiting", "youtube", "network", 1)
    received = [len(session.received) for session in youtube.sessions.values()]
    youtube.heard.clear()
    assert attempt(queue).status == "completed"
    whole(youtube, home)
    assert len(youtube.sessions) == 1
    if moment == "take":
        # It queried the received bytes and resumed there.
        assert youtube.heard[1].startswith(f"bytes {received[0]}-")
        assert received[0] > 0


def test_a_video_whose_last_answer_was_lost_is_not_uploaded_twice(
    queue: Queue, film: Task, youtube: YouTubeServer, home: Path
) -> None:
    youtube.faults = [("take", "")] * 5 + [("take", "publish and drop")]
    assert attempt(queue).error_class == "network"
    youtube.heard.clear()
    done = attempt(queue)
    assert (done.status, done.result["id"]) == ("completed", "v1")
    assert [span.startswith("bytes */") for span in youtube.heard] == [True]
    whole(youtube, home)


def test_a_session_that_expired_before_the_last_piece_is_begun_anew(
    queue: Queue, film: Task, youtube: YouTubeServer, home: Path
) -> None:
    youtube.faults = [("take", ""), ("take", "drop")]
    attempt(queue)
    youtube.sessions.clear()
    assert attempt(queue).status == "completed"
    whole(youtube, home)


def test_a_session_that_is_gone_after_its_last_piece_is_left_to_a_person(
    queue: Queue, film: Task, youtube: YouTubeServer
) -> None:
    youtube.faults = [("take", "")] * 5 + [("take", "publish and forget")]
    assert attempt(queue).error_class == "network"
    failed = attempt(queue)
    assert (failed.status, failed.error_class) == ("failed", "permanent")
    assert "may be published" in str(failed.error)
    assert len(youtube.published) == 1
    queue.finish("t1")
    assert queue.get("t1").status == "completed"


@pytest.mark.parametrize("moment", ["begin", "send"])
def test_a_spent_quota_holds_the_whole_phase_until_midnight_in_los_angeles(
    queue: Queue, film: Task, youtube: YouTubeServer, moment: str
) -> None:
    youtube.faults = [(moment, "403 quotaExceeded")]
    held = attempt(queue)
    assert (held.status, held.error_class) == ("waiting", "limit")
    expected = queue.store.now() + until_quota(queue.store.now())
    assert abs(held.run_at - expected) < timedelta(minutes=1)
    # Another film is not attempted.
    other = add_video("clouds", draw=True, task_id="t2")
    heard = len(youtube.heard)
    work()
    waiting = queue.get(other.task_id)
    assert (waiting.type, waiting.status, waiting.attempt, waiting.retry_count) == ("youtube", "waiting", 0, 0)
    assert len(youtube.heard) == heard


def test_midnight_in_los_angeles_knows_of_summer_time() -> None:
    assert until_quota(datetime(2026, 1, 15, 7, 0, tzinfo=UTC)) == timedelta(hours=1)
    assert until_quota(datetime(2026, 7, 15, 6, 0, tzinfo=UTC)) == timedelta(hours=1)
    assert until_quota(datetime(2026, 11, 1, 7, 0, tzinfo=UTC)) == timedelta(hours=25)


def test_a_rate_limit_is_waited_for_as_long_as_it_says(queue: Queue, film: Task, youtube: YouTubeServer) -> None:
    youtube.faults = [("send", "429 rateLimitExceeded")]
    held = attempt(queue)
    assert (held.status, held.error_class) == ("waiting", "limit")
    assert held.run_at - queue.store.now() <= timedelta(seconds=7)


def test_a_token_that_ran_out_is_renewed_in_the_middle_of_an_upload(
    queue: Queue, film: Task, youtube: YouTubeServer, home: Path
) -> None:
    youtube.faults = [("send", ""), ("send", "stale")]
    done = attempt(queue)
    assert (done.status, done.retry_count) == ("completed", 0)
    assert len(youtube.tokens_asked) == 2
    whole(youtube, home)


@pytest.mark.parametrize(
    "faults, says",
    [
        ([("token", "revoked")], "invalid_grant"),
        ([("begin", "401"), ("begin", "401")], "authorise the studio anew"),
        ([("begin", "403 forbidden")], "forbidden"),
    ],
    ids=["refresh token", "access token", "forbidden"],
)
def test_a_refused_account_fails_at_once_with_class_auth_and_no_secret_in_the_error(
    queue: Queue, film: Task, youtube: YouTubeServer, faults: list[tuple[str, str]], says: str
) -> None:
    youtube.faults = faults
    failed = attempt(queue)
    assert (failed.status, failed.type, failed.error_class, failed.retry_count) == ("failed", "youtube", "auth", 0)
    assert says in str(failed.error)
    lines = "".join(line.text for line in queue.logs("t1").lines)
    assert "token-value" not in str(failed.error) + failed.logs_json + lines


def test_what_is_missing_for_youtube_is_named() -> None:
    for wrong, says in [
        ({"STUDIO_TARGET": "youtube"}, "STUDIO_YOUTUBE_CLIENT_ID, STUDIO_YOUTUBE_CLIENT_SECRET"),
        ({"STUDIO_TARGET": "vimeo"}, "'folder' or 'youtube'"),
        ({"STUDIO_SIZE": "1281x720"}, "even numbers"),
        ({"STUDIO_FPS": "many"}, "STUDIO_FPS must be a number from 1 to 60"),
    ]:
        with pytest.raises(BadInput, match=says):
            Settings.of_environment(wrong)
    read: Callable[[dict[str, str]], Settings] = Settings.of_environment
    assert read({}).youtube is None


def test_a_server_that_takes_nothing_is_a_network_error_and_not_a_loop(
    queue: Queue, film: Task, youtube: YouTubeServer
) -> None:
    youtube.faults = [("take", "")] + [("take", "ignore")] * 9
    held = attempt(queue)
    assert (held.status, held.error_class) == ("waiting", "network")
    assert "took nothing more" in str(held.error)
