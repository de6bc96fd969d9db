"""The folder queue/: files become jobs, with the seed's keys and words."""

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from apps.transcriber.tests.kit import GPT, drop, receive, recording, until, work, works
from apps.transcriber.tests.model_server import ModelServer
from onerow import Queue
from onerow.core.messages import AddTasks, Message
from transcriber import add_job, open_queue
from transcriber.inbox import QueueFolder
from transcriber.settings import Settings

MISSING = "/no/such/recording.wav"
JOB = {
    "job_id": 123,
    "video_id": "Dm1V-ODwb1Q",
    "url": "https://youtu.be/Dm1V-ODwb1Q",
    "title": "Video title",
    "engine": "gpt-4o-mini-transcribe",
    "force": False,
    "timestamp": "2025-09-05T18:33:00",
}


def reason(home: Path, name: str) -> str:
    return (home / "queue" / "rejected" / f"{name}.reason").read_text()


@pytest.mark.contract(
    "`queue/*.json` with job_id, video_id, url, title, engine (`gpt-4o-mini-transcribe` …), force, timestamp, and optional "
    "priority (lower first), scheduled_at and the flags timestamps, summary, translate, srt, video."
)
def test_a_file_as_the_seed_writes_it_becomes_a_job(queue: Queue, home: Path) -> None:
    flags = {"timestamps": True, "summary": True, "translate": True, "srt": True, "video": True}
    drop(home, "a.json", JOB | flags | {"priority": -7, "scheduled_at": "2030-01-02T09:00:00Z"})
    drop(home, "b.json", JOB | {"job_id": "b"})
    receive()
    task = queue.get("123")
    assert (task.status, task.title, task.priority) == ("waiting", "Video title", -7)
    assert task.run_at == datetime(2030, 1, 2, 9, 0, tzinfo=UTC)
    at = datetime.fromisoformat(task.payload["timestamp"])
    assert at == datetime.fromisoformat(str(JOB["timestamp"])).astimezone()
    assert task.payload == JOB | flags | {"timestamp": task.payload["timestamp"], "playlist": ""}
    assert {flag: queue.get("b").payload[flag] for flag in flags} == dict.fromkeys(flags, False)


@pytest.mark.contract("A time without offset is read in the inbox's time zone (the host's by default).")
def test_a_time_without_offset_is_read_in_the_inbox_s_zone(queue: Queue, home: Path) -> None:
    drop(home, "a.json", JOB | {"scheduled_at": "2030-01-02T09:00:00"})
    receive(QueueFolder(Settings.of_environment(), ZoneInfo("Asia/Seoul")))
    assert queue.get("123").run_at == datetime(2030, 1, 2, 0, 0, tzinfo=UTC)


@pytest.mark.contract("A time without offset is read in the inbox's time zone (the host's by default).")
def test_a_time_without_offset_is_read_in_the_zone_of_the_host_by_default(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Seoul")
    time.tzset()
    try:
        inbox = QueueFolder(Settings.of_environment())
        body = '{"url": "/a", "scheduled_at": "2030-01-02T09:00:00"}'
        request = inbox.read(Message("m", body, attributes={"file": "a.json"}))
        assert isinstance(request, AddTasks)
        (addition,) = request.additions
        assert addition.run_at == datetime(2030, 1, 2, 0, 0, tzinfo=UTC)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.contract("Naive timestamps.")
def test_the_timestamp_of_a_job_is_stored_with_its_offset(queue: Queue, home: Path) -> None:
    drop(home, "a.json", JOB)
    drop(home, "b.json", JOB | {"job_id": "b", "timestamp": "2025-09-05T18:33:00+02:00"})
    receive(QueueFolder(Settings.of_environment(), ZoneInfo("Asia/Seoul")))
    stored = {task.task_id: datetime.fromisoformat(task.payload["timestamp"]) for task in queue.select()}
    assert stored == {"123": datetime(2025, 9, 5, 9, 33, tzinfo=UTC), "b": datetime(2025, 9, 5, 16, 33, tzinfo=UTC)}
    assert all(moment.tzinfo is not None for moment in stored.values())


@pytest.mark.contract("Dropping an ended job again: `force` replays it, else it is set aside with the reason.")
def test_an_ended_job_that_is_dropped_again_is_replayed_by_force_and_else_set_aside(
    models: ModelServer, queue: Queue, home: Path, tmp_path: Path
) -> None:
    job = {"job_id": "t", "url": str(recording(tmp_path / "t.wav", speech=(0.5,))), "engine": GPT}
    drop(home, "1.json", job)
    receive()
    work()
    drop(home, "2.json", job)
    assert receive().rejected == 1
    assert "completed" in reason(home, "2.json")
    assert models.stages() == ["chunk"]
    drop(home, "3.json", job | {"force": True})
    receive()
    work()
    task = queue.get("t")
    assert (task.status, task.generation) == ("completed", 1)
    assert models.stages() == ["chunk", "chunk"]  # a replay begins anew


@pytest.mark.contract("Taken queue files go to archive/ or are deleted, by a setting.")
def test_taken_files_are_archived_or_deleted(queue: Queue, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drop(home, "a.json", {"url": "/a.wav"})
    receive()
    assert [path.name for path in (home / "archive").iterdir()] == ["a.json"]
    monkeypatch.setenv("TRANSCRIBER_TAKEN", "delete")
    drop(home, "b.json", {"url": "/b.wav"})
    assert receive().added == 1
    assert [path.name for path in (home / "archive").iterdir()] == ["a.json"]
    assert sorted(path.name for path in (home / "queue").iterdir()) == ["rejected"]
    open_queue().close()


@pytest.mark.contract("Oldest first.")
def test_the_oldest_file_is_first_and_a_lower_priority_number_before_it(queue: Queue, home: Path) -> None:
    for age, name in enumerate(["c", "a", "b"]):
        path = drop(home, f"{name}.json", {"job_id": name, "url": MISSING, "priority": -1 if name == "b" else 0})
        os.utime(path, (1_700_000_000 + age, 1_700_000_000 + age))
    receive()
    work(concurrency=1)
    order = sorted(queue.select(), key=lambda task: str(task.completed_at))
    assert [task.task_id for task in order] == ["b", "c", "a"]


@pytest.mark.contract("Oldest first.")
def test_the_oldest_file_is_first_among_more_files_than_one_batch_and_lines_keep_their_order(
    queue: Queue, home: Path
) -> None:
    for age in range(250):
        path = drop(home, f"{age}.json", {"job_id": str(999 - age), "url": f"/a/{age}.wav"})
        os.utime(path, (1_700_000_000 + age, 1_700_000_000 + age))
    drop(home, "list.txt", "\n".join(f"/a/{age}.wav" for age in range(250, 260)))
    receive()
    order = sorted(queue.select(), key=lambda task: (task.run_at, task.task_id))  # as workers take them
    assert [task.title for task in order] == [f"{age}.wav" for age in range(260)]


@pytest.mark.contract("`.lock` beside the file.")
def test_a_file_that_is_taken_has_a_lock_beside_it_and_no_other_process_takes_it(home: Path) -> None:
    drop(home, "a.json", {"job_id": "a", "url": MISSING})
    inbox = QueueFolder(Settings.of_environment())
    assert len(inbox.receive(0)) == 1
    assert json.loads((home / "queue" / "a.json.lock").read_text())["pid"] == os.getpid()
    assert QueueFolder(Settings.of_environment()).receive(0) == []


@pytest.mark.contract("Lock released before the file is moved.")
def test_a_lock_stands_until_the_file_is_moved(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = drop(home, "a.json", {"job_id": "a", "url": MISSING})
    lock = home / "queue" / "a.json.lock"
    inbox = QueueFolder(Settings.of_environment())
    messages = inbox.receive(0)
    rename, seen = os.rename, []

    def watched(source: str, target: str) -> None:
        seen.append((taken.exists(), lock.exists()))
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", watched)
        inbox.acknowledge(messages)
    assert seen == [(True, True)]
    assert not taken.exists()
    assert not lock.exists()


@pytest.mark.contract("Stale `.lock`.")
def test_the_lock_of_a_dead_process_is_taken_over(queue: Queue, home: Path) -> None:
    code = "from transcriber.inbox import *; import os; QueueFolder(Settings.of_environment()).receive(0); os._exit(9)"
    drop(home, "b.json", {"job_id": "b", "url": MISSING})
    assert subprocess.run([sys.executable, "-c", code], env=os.environ).returncode == 9
    assert (home / "queue" / "b.json.lock").exists()
    assert receive().added == 1


@pytest.mark.contract("Half-written JSON read.")
def test_a_half_written_file_is_left_until_it_is_whole(queue: Queue, home: Path) -> None:
    text = json.dumps({"job_id": "a", "url": MISSING})
    drop(home, "a.json", text[:12])
    assert receive().received == 0
    drop(home, "a.json", text)
    assert receive().added == 1
    old = drop(home, "b.json", text[:12])
    os.utime(old, (1_700_000_000, 1_700_000_000))
    assert receive().rejected == 1
    assert "not complete JSON" in reason(home, "b.json")


@pytest.mark.contract("File and database written apart.")
def test_a_process_that_dies_between_row_and_file_loses_and_doubles_nothing(queue: Queue, home: Path) -> None:
    code = (
        "import os; from transcriber.inbox import *; from transcriber.opening import open_queue;"
        "from onerow.engine.receiving.receiver import Receiver;"
        "inbox = QueueFolder(Settings.of_environment()); inbox.acknowledge = lambda messages: os._exit(9);"
        "Receiver(open_queue(), inbox, 'x').receive_available()"
    )
    drop(home, "a.json", {"job_id": "a", "url": MISSING})
    assert subprocess.run([sys.executable, "-c", code], env=os.environ).returncode == 9
    assert queue.get("a").status == "waiting"
    assert (home / "queue" / "a.json").exists()
    counts = receive()
    assert (counts.added, counts.rejected) == (0, 0)
    assert len(list(queue.select())) == 1
    assert (home / "archive" / "a.json").exists()


@pytest.mark.contract("A URL that starts with `-`.", "Absolute normalised paths.")
@pytest.mark.parametrize("url", ["--help", "-x", "relative/a.wav", "ftp://a/b", "http://", "file://host", "", "a\nb"])
def test_a_url_that_is_no_url_is_set_aside(queue: Queue, home: Path, url: str) -> None:
    drop(home, "a.json", {"job_id": "a", "url": url})
    assert receive().rejected == 1
    assert "url" in reason(home, "a.json")
    assert list(queue.select()) == []


@pytest.mark.contract("A URL that starts with `-`.")
def test_a_url_that_starts_with_a_dash_never_reaches_the_program(queue: Queue) -> None:
    queue.add("transcribe", {"url": "--help", "engine": "pocketsphinx"}, task_id="t")  # past the checks of the inbox
    work()
    task = queue.get("t")
    assert (task.status, task.error_class) == ("failed", "permanent")
    assert "would be taken for an option" in str(task.error)


@pytest.mark.parametrize("url", ["http://[::1", "file://another.host/a.wav", "file:///a%00.wav"])
def test_a_url_with_a_broken_or_wrong_host_is_set_aside(queue: Queue, home: Path, url: str) -> None:
    drop(home, "a.json", {"url": url})
    assert receive().rejected == 1
    assert "url" in reason(home, "a.json")


def test_a_cancelled_job_stays_cancelled_also_by_force(queue: Queue, home: Path) -> None:
    add_job(MISSING, task_id="c")
    queue.cancel("c")
    drop(home, "c.json", {"job_id": "c", "url": MISSING, "force": True})
    assert receive().rejected == 1
    assert "cancelled" in reason(home, "c.json")


def test_a_file_with_a_byte_order_mark_is_read(queue: Queue, home: Path) -> None:
    drop(home, "a.json", "\ufeff" + json.dumps({"job_id": "a", "url": MISSING}))
    drop(home, "b.txt", f"\ufeff{MISSING}\n")
    assert receive().added == 2


@pytest.mark.contract("Absolute normalised paths.")
@pytest.mark.parametrize("url", ["/rec/x/../조수.wav", "/rec//./조수.wav", "file:///rec/%EC%A1%B0%EC%88%98.wav"])
def test_a_path_is_stored_absolute_and_normalised(queue: Queue, home: Path, url: str) -> None:
    drop(home, "a.json", {"job_id": "a", "url": url})
    assert receive().added == 1
    assert queue.get("a").payload["url"] == "/rec/조수.wav"


@pytest.mark.contract("A name with `../`.")
def test_a_name_with_dots_and_slashes_stays_in_its_folder(
    models: ModelServer, queue: Queue, home: Path, tmp_path: Path
) -> None:
    sound = recording(tmp_path / "t.wav", speech=(0.5,)).read_bytes()
    models.files["/..%2f..%2fescape.wav"] = (sound, "audio/wav")
    url = f"{models.url}/..%2f..%2fescape.wav?v=../../../v"
    drop(home, "a.json", {"job_id": "..\\..", "url": url, "engine": GPT, "video": True, "title": "../../t"})
    drop(home, "b.json", {"job_id": "../../b", "url": url})
    assert receive().rejected == 1  # an id with a slash
    before = set(tmp_path.iterdir())
    work()
    (task,) = queue.select()
    assert task.status == "completed"
    for key in ("transcript_path", "audio_path", "video_path", "log_path"):
        path = Path(task.results["transcribe"][key])
        assert path.resolve().parent.parent == home.resolve()
        assert path.is_file()
    assert set(tmp_path.iterdir()) == before


def test_jobs_with_ids_and_names_alike_have_files_of_their_own(
    models: ModelServer, queue: Queue, tmp_path: Path
) -> None:
    for number, (name, task_id) in enumerate(
        [("x", "a b"), ("x", "a_b"), ("x", "-a"), ("x", "a"), ("x-a", "b"), ("x", "a-b")]
    ):
        path = tmp_path / str(number) / f"{name}.mp4"
        path.parent.mkdir()
        path.touch()
        path.with_suffix(".srt").write_text(f"1\n00:00:00,000 --> 00:00:01,000\n{task_id} of {name}\n")
        add_job(str(path), task_id=task_id, title=name, engine="youtube")
    work()
    for task in queue.select():
        text = Path(task.results["transcribe"]["transcript_path"]).read_text()
        assert text == f"{task.task_id} of {task.title}\n"


@pytest.mark.contract("Cancel by `.cancel` marker.")
def test_a_marker_cancels_a_running_job(models: ModelServer, queue: Queue, home: Path, tmp_path: Path) -> None:
    models.hold = "chunk"
    url = str(recording(tmp_path / "t.wav", speech=(0.5,)))
    with works(home) as transcriber:
        drop(home, "t.json", {"job_id": "t", "url": url, "engine": GPT})
        transcriber.start()
        until(models.held.is_set, "the request")
        marker = drop(home, "t.cancel", "")
        until(lambda: queue.get("t").status == "cancelled", "the cancel")
        until(lambda: not transcriber.living("main.py"), "the end of main.py")
        until(lambda: not marker.exists(), "the use of the marker")


@pytest.mark.contract("A leftover `.cancel` kills a later requeue.")
def test_a_marker_that_is_older_than_the_job_cancels_nothing(queue: Queue, home: Path) -> None:
    job = {"job_id": "u", "url": MISSING}
    drop(home, "u.json", job)
    receive()
    work()
    assert queue.get("u").status == "failed"
    old = drop(home, "u.cancel", "")
    os.utime(old, (1_700_000_000, 1_700_000_000))
    drop(home, "u2.json", job | {"force": True})
    receive()
    assert (queue.get("u").status, queue.get("u").generation) == ("waiting", 1)
    receive()
    assert not old.exists()
    work()
    assert (queue.get("u").status, queue.get("u").generation) == ("failed", 1)  # it ran, and found no file


def test_a_list_of_urls_becomes_one_job_each(queue: Queue, home: Path) -> None:
    drop(home, "list.txt", "# talks\n/a/1.wav\n\n/a/2.wav\n")
    drop(home, "list.json", [{"url": "/a/3.wav", "engine": GPT}, "/a/4.wav"])
    assert receive().added == 4
    found = {task.payload["url"]: task.payload["engine"] for task in queue.select()}
    assert found == {
        "/a/1.wav": "pocketsphinx",
        "/a/2.wav": "pocketsphinx",
        "/a/3.wav": GPT,
        "/a/4.wav": "pocketsphinx",
    }
