"""kill -9 in every phase: no task is lost, no phase skipped, no film published twice."""

from datetime import timedelta
from pathlib import Path

import pytest

from apps.video_studio.tests.chat_server import ChatServer, hanging
from apps.video_studio.tests.kit import at, ended, good, picture, until, works
from apps.video_studio.tests.youtube_server import YouTubeServer
from onerow import Queue, Task
from video_studio import add_video, queue_counts
from video_studio.uploads import upload

PHASES = ["schedule", "script", "image", "video", "youtube"]


def whole_story(task: Task) -> None:
    """Check that the task is completed, with each phase once and in order, and no error, retry, lease or slot left."""
    assert (task.status, task.error, task.retry_count) == ("completed", None, 0)
    assert good(task) == PHASES
    assert set(task.results) == {"script", "image", "video", "youtube"}
    assert (task.leased_by, task.slot) == (None, None)


@pytest.mark.faults
@pytest.mark.contract(
    "A crashed worker must not leave its phase blocked for ever.",
    "A worker killed in any phase loses nothing, skips nothing and publishes nothing twice.",
)
def test_a_worker_killed_in_each_phase_loses_skips_and_repeats_nothing(
    queue: Queue, chat: ChatServer, youtube: YouTubeServer, home: Path, tmp_path: Path
) -> None:
    chat.turns = [hanging]
    youtube.faults = [("take", "publish and hang")]
    look = {"STUDIO_SIZE": "640x360", "STUDIO_FPS": "30", "STUDIO_SECONDS": "8"}
    with works(home, STUDIO_OPENAI_BASE_URL=chat.url, **youtube.environment, **look) as studio:
        studio.start()
        add_video("조수와 달", task_id="t1", scheduled_time=queue.store.now() + timedelta(hours=1))
        add_video("behind it", task_id="t2", scheduled_time=queue.store.now() + timedelta(hours=1))

        studio.kill()  # schedule: the task waits for its time
        studio.start()
        assert (queue.get("t1").type, queue.get("t1").history) == ("schedule", [])
        queue.reschedule("t1", queue.store.now())

        until(lambda: len(chat.asked) == 1, "the question")
        at("t1", "script", "processing")
        studio.kill()  # script: the endpoint has not answered
        studio.start()

        parked = at("t1", "image", "waiting")
        studio.kill()  # image: the task is parked
        studio.start()
        assert queue.get("t1") == parked
        upload("t1", [picture(tmp_path / "a.png"), picture(tmp_path / "b.png", "teal")])

        at("t1", "video", "processing")
        until(lambda: studio.living("t1-0.mp4"), "ffmpeg")
        studio.kill()  # video: in the middle of the frames
        until(lambda: not studio.living("t1-0.mp4"), "the end of its ffmpeg")
        studio.start()

        until(youtube.hung.is_set, "the last piece")
        studio.kill()  # youtube: published, but the answer has not arrived
        studio.start()
        done = ended("t1")

        # The phases that were killed are not blocked.
        queue.reschedule("t2", queue.store.now())
        upload("t2", [picture(tmp_path / "a.png")])
        behind = ended("t2")
    whole_story(done)
    whole_story(behind)
    rescued = [entry.phase for entry in done.history if entry.what == "rescued"]
    assert rescued == ["script", "video", "youtube"]
    assert [session.body["snippet"]["title"] for session in youtube.published] == ["Ebb & flow"] * 2
    assert done.result["id"] == "v1"
    assert len(youtube.sessions) == 2
    assert bytes(youtube.published[0].received) == (home / "videos" / "t1-0.mp4").read_bytes()
    assert sorted(path.name for path in (home / "videos").iterdir()) == ["t1-0.mp4", "t2-0.mp4"]
    counts = queue_counts()
    assert counts.pop("completed") == 2
    assert set(counts.values()) == {0}
