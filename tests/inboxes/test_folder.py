"""The folder inbox: files become tasks; no file is lost, taken twice or read half-written."""

import errno
import json
import os
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from onerow import Pipeline, Queue, Status
from onerow.core.errors import BadInput, InboxUnavailable
from onerow.core.messages import Message
from onerow.engine.queue.queue import Queue as EngineQueue
from onerow.engine.receiving.receiver import Receiver
from onerow.identity import Identity
from onerow.inboxes.folder import FolderInbox, drop
from onerow.inboxes.locks import LOCK_FOR, LONGEST_LOCK
from onerow.ports import Inbox
from tests.engine.kit import until, work, working

SEOUL = timezone(timedelta(hours=9))


def jobs_pipeline() -> Pipeline:
    pipeline = Pipeline("jobs")

    @pipeline.phase
    async def run(job: Any) -> Any:
        return job

    return pipeline


jobs = jobs_pipeline()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "queue"
    path.mkdir()
    return path


@pytest.fixture
def memory() -> Iterator[Queue]:
    queue = Queue("memory://")
    queue.publish(jobs)
    yield queue
    queue.close()


def inbox_of(folder: Path, **options: Any) -> FolderInbox:
    terms: dict[str, Any] = {"pipeline": "jobs", "settle": "0s", "watch": False} | options
    return FolderInbox(folder, **terms)


def take(queue: EngineQueue, inbox: FolderInbox) -> Any:
    """Receive everything that is there; return the counts."""
    inbox._look_at = 0.0
    return Receiver(queue, inbox, "w1").receive_available()


def reason(folder: Path, name: str) -> str:
    return (folder / "rejected" / f"{name}.reason").read_text().strip()


def names(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir() if each.is_file() or each.is_symlink())


def test_it_has_the_port_of_an_inbox(folder: Path) -> None:
    assert isinstance(inbox_of(folder), Inbox)


def test_a_file_becomes_a_task_and_moves_to_the_archive(folder: Path, memory: Queue) -> None:
    (folder / "one.json").write_text('{"job_id": "j1", "url": "http://a", "title": "영상 🎬", "priority": -3}')
    counts = take(memory, inbox_of(folder))
    task = memory.get("j1")
    assert (task.pipeline, task.title, task.priority) == ("jobs", "영상 🎬", -3)
    assert task.payload["url"] == "http://a"
    assert (counts.added, counts.rejected) == (1, 0)
    assert names(folder) == []
    assert names(folder / "archive") == ["one.json"]


def test_a_job_id_may_be_a_whole_number(folder: Path, memory: Queue) -> None:
    (folder / "one.json").write_text('{"job_id": 123}')
    (folder / "two.json").write_text('{"job_id": true}')
    (folder / "three.json").write_text('{"job_id": ""}')
    counts = take(memory, inbox_of(folder))
    assert (counts.added, counts.rejected) == (1, 2)
    assert reason(folder, "three.json") == "job_id is empty; give the job an id, or leave the key out"
    assert memory.get("123").payload == {"job_id": 123}


def test_taken_files_can_be_deleted_instead(folder: Path, memory: Queue) -> None:
    (folder / "one.json").write_text("{}")
    take(memory, inbox_of(folder, keep=False))
    assert names(folder) == names(folder / "archive") == []


def test_the_oldest_file_is_taken_first(folder: Path, memory: Queue) -> None:
    for age, name in ((10, "b"), (30, "c"), (20, "a")):
        (folder / f"{name}.json").write_text(json.dumps({"job_id": name}))
        os.utime(folder / f"{name}.json", (time.time() - age,) * 2)
    inbox = inbox_of(folder)
    assert [message.attributes["file"] for message in inbox.receive(0)] == ["c.json", "a.json", "b.json"]


def test_a_time_without_an_offset_is_read_in_the_zone_of_the_inbox(folder: Path, memory: Queue) -> None:
    (folder / "a.json").write_text('{"job_id": "a", "scheduled_at": "2030-01-02T09:00:00"}')
    (folder / "b.json").write_text('{"job_id": "b", "scheduled_at": "2030-01-02T09:00:00Z"}')
    (folder / "c.json").write_text('{"job_id": "c", "scheduled_at": "soon"}')
    take(memory, inbox_of(folder, timezone=SEOUL))
    assert memory.get("a").run_at == datetime(2030, 1, 2, 0, 0, tzinfo=UTC)
    assert memory.get("b").run_at == datetime(2030, 1, 2, 9, 0, tzinfo=UTC)
    assert "scheduled_at" in reason(folder, "c.json")


def test_a_half_written_file_is_left_until_it_is_complete(folder: Path, memory: Queue) -> None:
    inbox = inbox_of(folder, settle="10m")
    path = folder / "a.json"
    path.write_text('{"job_id": "a", "url"')
    counts = take(memory, inbox)
    assert (counts.added, counts.rejected) == (0, 0)
    assert names(folder) == ["a.json"]
    path.write_text('{"job_id": "a", "url": "u"}')
    assert take(memory, inbox).added == 1


def test_a_file_that_stays_incomplete_is_rejected_with_the_reason(folder: Path, memory: Queue) -> None:
    (folder / "a.json").write_text('{"job')
    os.utime(folder / "a.json", (time.time() - 60,) * 2)
    assert take(memory, inbox_of(folder, settle="5s")).rejected == 1
    assert "not complete JSON" in reason(folder, "a.json")
    assert names(folder) == []


def test_a_list_becomes_one_task_per_item(folder: Path, memory: Queue) -> None:
    (folder / "a.txt").write_text("http://1\n\n# note\nhttp://2\n")
    (folder / "b.m3u").write_text("#EXTM3U\n#EXTINF:1,x\nhttp://3\n")
    (folder / "c.json").write_text('["http://4", {"url": "http://5", "n": 1}]')
    (folder / "d.txt").write_text("\n")
    counts = take(memory, inbox_of(folder))
    assert sorted(task.payload["url"] for task in memory.find().tasks) == [f"http://{n}" for n in range(1, 6)]
    assert (counts.received, counts.added, counts.rejected) == (4, 5, 1)


def test_a_file_that_is_taken_again_after_a_crash_changes_nothing(folder: Path, memory: Queue) -> None:
    """The receiver dies after the row is stored and before the file is moved; by then the task has even ended."""
    (folder / "a.json").write_text('{"job_id": "a"}')
    (folder / "b.txt").write_text("x\ny\n")
    first = inbox_of(folder)
    first.acknowledge = lambda messages: first.release(messages, 0.0)  # type: ignore[method-assign]
    receiver = Receiver(memory, first, "w1")
    receiver.store(first.receive(0))
    assert names(folder) == ["a.json", "b.txt"]
    work(memory, jobs)
    counts = take(memory, inbox_of(folder))
    assert (counts.added, counts.duplicate, counts.rejected) == (0, 3, 0)
    assert len(memory.find().tasks) == 3
    assert memory.get("a").generation == 0


def test_an_ended_job_dropped_again_is_rejected_unless_forced(folder: Path, memory: Queue) -> None:
    inbox = inbox_of(folder)
    (folder / "a.json").write_text('{"job_id": "a"}')
    take(memory, inbox)
    work(memory, jobs)
    (folder / "a.json").write_text('{"job_id": "a"}')
    assert take(memory, inbox).rejected == 1
    assert "already completed" in reason(folder, "a.json")
    (folder / "again.json").write_text('{"job_id": "a", "force": true}')
    assert take(memory, inbox).found == 1
    task = memory.get("a")
    assert (task.status, task.generation) == (Status.WAITING, 1)


def test_a_forced_file_that_is_taken_again_after_a_crash_replays_once(folder: Path, memory: Queue) -> None:
    inbox = inbox_of(folder)
    (folder / "a.json").write_text('{"job_id": "a"}')
    take(memory, inbox)
    work(memory, jobs)
    (folder / "again.json").write_text('{"job_id": "a", "force": true}')
    crashing = inbox_of(folder)
    crashing.acknowledge = lambda messages: crashing.release(messages, 0.0)  # type: ignore[method-assign]
    Receiver(memory, crashing, "w1").store(crashing.receive(0))
    work(memory, jobs)
    assert take(memory, inbox_of(folder)).duplicate == 1
    assert (memory.get("a").status, memory.get("a").generation) == (Status.COMPLETED, 1)


def test_a_cancel_marker_cancels_its_task_and_is_used_up(folder: Path, memory: Queue) -> None:
    inbox = inbox_of(folder)
    (folder / "a.json").write_text('{"job_id": "a"}')
    (folder / "a.cancel").write_text("")
    take(memory, inbox)
    assert memory.get("a").status is Status.CANCELLED
    assert names(folder) == []


def test_a_marker_written_before_the_row_of_its_job_cancels_it(folder: Path, memory: Queue) -> None:
    """The marker is dropped right after its job, and is seen only in the next look, when the row exists."""
    inbox = inbox_of(folder)
    (folder / "a.json").write_text('{"job_id": "a"}')
    os.utime(folder / "a.json", (time.time() - 60,) * 2)
    take(memory, inbox)
    (folder / "a.cancel").write_text("")
    os.utime(folder / "a.cancel", (time.time() - 50,) * 2)
    take(memory, inbox)
    assert memory.get("a").status is Status.CANCELLED


def test_an_old_cancel_marker_does_not_cancel_a_later_run(folder: Path, memory: Queue) -> None:
    inbox = inbox_of(folder)
    (folder / "a.json").write_text('{"job_id": "a"}')
    take(memory, inbox)
    work(memory, jobs)
    (folder / "a.cancel").write_text("")
    os.utime(folder / "a.cancel", (time.time() - 60,) * 2)
    memory.replay("a")
    take(memory, inbox)
    assert memory.get("a").status is Status.WAITING
    assert "older" in reason(folder, "a.cancel")


def test_a_marker_of_an_ended_task_is_used_up_and_leaves_no_trace_for_the_next_run(folder: Path, memory: Queue) -> None:
    inbox = inbox_of(folder)
    (folder / "a.json").write_text('{"job_id": "a"}')
    take(memory, inbox)
    work(memory, jobs)
    (folder / "a.cancel").write_text("")
    take(memory, inbox)
    assert names(folder) == []
    memory.replay("a")
    take(memory, inbox)
    assert memory.get("a").status is Status.WAITING


def lock(folder: Path, name: str, **facts: Any) -> Path:
    own = Identity.of_this_process()
    body = {"boot": own.boot, "namespace": own.namespace, "host": own.host, "pid": own.pid, "born": own.born} | facts
    path = folder / f"{name}.lock"
    path.write_text(json.dumps(body))
    return path


def test_a_file_locked_by_a_live_process_is_left_alone(folder: Path, memory: Queue) -> None:
    (folder / "a.json").write_text("{}")
    os.utime(lock(folder, "a.json"), (time.time() - 5 * LOCK_FOR,) * 2)
    assert take(memory, inbox_of(folder)).received == 0
    assert names(folder) == ["a.json", "a.json.lock"]


def test_a_lock_of_a_dead_process_is_taken_over(folder: Path, memory: Queue) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (folder / "a.json").write_text("{}")
    lock(folder, "a.json", pid=dead.pid, born="1")
    assert take(memory, inbox_of(folder)).added == 1
    assert names(folder) == []


def test_a_lock_of_another_host_is_taken_over_when_its_time_is_up(folder: Path, memory: Queue) -> None:
    (folder / "a.json").write_text("{}")
    path = lock(folder, "a.json", boot="another", host="elsewhere")
    assert take(memory, inbox_of(folder)).received == 0
    os.utime(path, (time.time() - 2 * LOCK_FOR,) * 2)
    assert take(memory, inbox_of(folder)).added == 1


def test_an_unreadable_lock_is_taken_over_when_its_time_is_up(folder: Path, memory: Queue) -> None:
    (folder / "a.json").write_text("{}")
    path = folder / "a.json.lock"
    path.write_text("?")
    assert take(memory, inbox_of(folder)).received == 0
    os.utime(path, (time.time() - 2 * LOCK_FOR,) * 2)
    assert take(memory, inbox_of(folder)).added == 1


def test_a_lock_that_a_live_process_keeps_too_long_is_taken_over(folder: Path, memory: Queue) -> None:
    """Its thread has failed, else the lock would be gone after one batch."""
    (folder / "a.json").write_text("{}")
    os.utime(lock(folder, "a.json"), (time.time() - 2 * LONGEST_LOCK,) * 2)
    assert take(memory, inbox_of(folder)).added == 1


def test_files_are_unlocked_when_storing_them_fails_unexpectedly(
    folder: Path, memory: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "a.json").write_text("{}")
    inbox = inbox_of(folder)

    def fail(*args: object, **terms: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(type(memory.store), "insert", fail)
        with pytest.raises(ZeroDivisionError):
            take(memory, inbox)
    assert names(folder) == ["a.json"]
    assert take(memory, inbox_of(folder)).added == 1


def test_files_are_unlocked_when_the_archive_cannot_be_written(folder: Path, memory: Queue) -> None:
    for name in ("a", "b"):
        (folder / f"{name}.json").write_text("{}")
    inbox = inbox_of(folder)
    messages = inbox.receive(0)
    (folder / "archive").rmdir()
    (folder / "archive").write_text("a file")
    with pytest.raises(InboxUnavailable):
        Receiver(memory, inbox, "w1").store(messages)
    assert names(folder) == ["a.json", "archive", "b.json"]
    (folder / "archive").unlink()
    assert take(memory, inbox_of(folder)).duplicate == 2


def test_a_lock_that_its_own_inbox_no_longer_knows_is_taken_over(folder: Path, memory: Queue) -> None:
    (folder / "a.json").write_text("{}")
    inbox = inbox_of(folder)
    inbox.receive(0)
    inbox._locks._held.clear()
    assert take(memory, inbox).added == 1


def test_a_file_that_is_replaced_after_it_was_read_is_taken_too(folder: Path, memory: Queue) -> None:
    path = folder / "a.json"
    path.write_text('{"job_id": "first"}')
    inbox = inbox_of(folder)
    messages = inbox.receive(0)
    drop(folder, {"job_id": "second"}, name="a.json")
    Receiver(memory, inbox, "w1").store(messages)
    assert names(folder) == ["a.json"]
    take(memory, inbox)
    assert sorted(task.task_id for task in memory.find().tasks) == ["first", "second"]


def test_a_marker_that_names_no_job_is_rejected_after_five_looks(folder: Path, memory: Queue) -> None:
    inbox = inbox_of(folder)
    (folder / "missing.cancel").write_text("")
    for _ in range(5):
        assert names(folder) == ["missing.cancel"]
        inbox._released = {name: replace(each, until=0.0) for name, each in inbox._released.items()}
        take(memory, inbox)
    assert "no task 'missing'" in reason(folder, "missing.cancel")


def test_a_marker_comes_first_and_waits_for_its_job_in_a_long_listing(
    folder: Path, memory: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onerow.inboxes.folder._BATCH", 2)
    for number in range(9):
        (folder / f"{number}.json").write_text(json.dumps({"job_id": f"j{number}"}))
    (folder / "j8.cancel").write_text("")
    inbox = inbox_of(folder)
    first = inbox.receive(0)
    assert first[0].attributes["file"] == "j8.cancel"
    Receiver(memory, inbox, "w1").store(first)
    assert inbox._released["j8.cancel"].deliveries == 1
    take(memory, inbox)
    inbox._released = {name: replace(each, until=0.0) for name, each in inbox._released.items()}
    take(memory, inbox)
    assert memory.get("j8").status is Status.CANCELLED


def test_a_share_without_links_has_locks_too(folder: Path, memory: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*args: object) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr("os.link", no_links)
    (folder / "a.json").write_text("{}")
    inbox = inbox_of(folder)
    messages = inbox.receive(0)
    assert json.loads((folder / "a.json.lock").read_text())["pid"] == os.getpid()
    assert take(memory, inbox_of(folder)).received == 0
    Receiver(memory, inbox, "w1").store(messages)
    assert names(folder) == []


def test_what_a_killed_process_has_left_is_removed(folder: Path, memory: Queue) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    lock(folder, "moved.json", pid=dead.pid, born="1")
    lock(folder, "moving.json")
    old, fresh, foreign = folder / f".{'a' * 32}.tmp", folder / f".{'b' * 32}.tmp", folder / ".mine.tmp"
    for path in (old, fresh, foreign):
        path.write_text("")
    for path in (old, foreign):
        os.utime(path, (time.time() - 7200,) * 2)
    take(memory, inbox_of(folder))
    assert names(folder) == [fresh.name, ".mine.tmp", "moving.json.lock"]


def test_a_listing_is_bounded_and_serves_many_batches(
    folder: Path, memory: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onerow.inboxes.folder._BATCH", 2)
    monkeypatch.setattr("onerow.inboxes.folder._MOST_KNOWN", 6)
    for number in range(10):
        (folder / f"{number}.json").write_text("{}")
        os.utime(folder / f"{number}.json", (1000 + number,) * 2)
    inbox = inbox_of(folder, interval="0s")
    looks: list[int] = []
    look = inbox._look

    def counted() -> list[str]:
        looks.append(len(inbox._known))
        return look()

    monkeypatch.setattr(inbox, "_look", counted)
    receiver = Receiver(memory, inbox, "w1")
    taken = []
    while messages := inbox.receive(0):
        assert len(inbox._known) < 6
        taken += [message.attributes["file"] for message in messages]
        receiver.store(messages)
    assert taken == [f"{number}.json" for number in range(10)]
    assert len(looks) == 3  # six files, four files, none


class _Million:
    """The entries of a folder with a million files, the newest first."""

    def __enter__(self) -> "Iterator[Any]":
        for number in range(1_000_000):
            facts = SimpleNamespace(st_mtime_ns=1_000_000 - number)
            yield SimpleNamespace(name=f"{number}.json", is_dir=lambda **_: False, stat=lambda facts=facts, **_: facts)

    def __exit__(self, *error: object) -> None:
        pass


@pytest.mark.slow
def test_a_million_files_need_little_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onerow.inboxes.folder.os.scandir", lambda path: _Million())
    inbox = inbox_of(folder)
    tracemalloc.start()
    try:
        found = inbox._look()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == [f"{number}.json" for number in range(999_999, 949_999, -1)]
    assert peak < 64_000_000


def test_an_interrupt_ends_the_wait_for_files(folder: Path) -> None:
    inbox = inbox_of(folder, interval="1h")
    began = threading.Event()
    ended = threading.Event()

    def receive() -> None:
        began.set()
        inbox.receive(3600)
        ended.set()

    thread = threading.Thread(target=receive, daemon=True)
    thread.start()
    began.wait()
    inbox.interrupt()
    assert ended.wait(900)


def test_dangerous_files_are_rejected_with_the_reason(folder: Path, memory: Queue) -> None:
    secret = folder.parent / "secret.json"
    secret.write_text('{"job_id": "leak"}')
    (folder / "link.json").symlink_to(secret)
    os.mkfifo(folder / "pipe.json")
    (folder / "-rf.json").write_text("{}")
    (folder / "large.json").write_text('{"a": "' + "x" * 3000 + '"}')
    (folder / "control\x1b[31m.json").write_text("{}")
    (folder / "binary.txt").write_bytes(b"\xff\xfe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "sock.json"))
        (folder / "folder.json").mkdir()
        counts = take(memory, inbox_of(folder, max_size="2KB"))
    assert (counts.added, counts.rejected) == (0, 7)
    assert "symbolic link" in reason(folder, "link.json")
    assert "not a regular file" in reason(folder, "pipe.json")
    assert "name" in reason(folder, "rf.json")
    assert "bytes" in reason(folder, "large.json")
    assert secret.read_text() == '{"job_id": "leak"}'
    assert memory.find().tasks == []


def test_a_file_of_another_owner_is_rejected(folder: Path, memory: Queue) -> None:
    (folder / "a.json").write_text("{}")
    assert take(memory, inbox_of(folder, owners=[os.getuid() + 1])).rejected == 1
    assert "owners=" in reason(folder, "a.json")
    (folder / "b.json").write_text("{}")
    assert take(memory, inbox_of(folder, owners=[os.getuid()])).added == 1


def test_written_files_are_not_readable_by_others(folder: Path, memory: Queue) -> None:
    os.umask(previous := os.umask(0))
    (folder / "a.json").write_text("{")
    os.utime(folder / "a.json", (1, 1))
    take(memory, inbox_of(folder))
    assert (folder / "rejected" / "a.json.reason").stat().st_mode & 0o777 == 0o640 & ~previous
    assert drop(folder, {"job_id": "x"}).stat().st_mode & 0o777 == 0o640 & ~previous


def test_an_archived_name_is_not_overwritten(folder: Path, memory: Queue) -> None:
    inbox = inbox_of(folder)
    for number in range(3):
        (folder / "a.json").write_text(json.dumps({"n": number}))
        take(memory, inbox)
    assert len(names(folder / "archive")) == 3


def test_bad_options_are_errors_that_say_what_to_do(folder: Path) -> None:
    with pytest.raises(BadInput, match="absolute"):
        FolderInbox("queue")
    with pytest.raises(BadInput, match="no user"):
        FolderInbox(folder, owners=["no-such-user"])


def test_a_folder_that_did_not_exist_is_created_with_a_warning(
    tmp_path: Path, memory: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    inbox = inbox_of(tmp_path / "typo" / "queue")
    for _ in range(2):
        assert take(memory, inbox).received == 0
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert said == [f"inbox {inbox.name}: this folder did not exist; it is created"], "once"
    assert (tmp_path / "typo" / "queue").is_dir()


def test_a_folder_that_exists_is_no_warning(folder: Path, memory: Queue, caplog: pytest.LogCaptureFixture) -> None:
    take(memory, inbox_of(folder))
    assert not caplog.records


def test_a_folder_that_cannot_be_read_is_an_unavailable_inbox(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InboxUnavailable, match="file"):
        inbox_of(tmp_path / "file" / "queue").receive(0)


def test_a_full_disk_makes_the_inbox_unavailable_and_loses_nothing(
    folder: Path, memory: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "a.json").write_text("{}")

    def full(*args: object, **terms: object) -> int:
        raise OSError(28, "No space left on device")

    inbox = inbox_of(folder)
    with monkeypatch.context() as patch:
        patch.setattr("onerow.inboxes.locks.write_new", full)
        with pytest.raises(InboxUnavailable, match="No space left"):
            inbox.receive(0)
    assert names(folder) == ["a.json"]
    assert take(memory, inbox).added == 1


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.text(st.characters(exclude_characters="/\x00", exclude_categories=["Cs"]), min_size=1, max_size=40),
    content=st.one_of(
        st.binary(max_size=60),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        ).map(lambda value: json.dumps(value).encode()),
        st.fixed_dictionaries(
            {},
            optional={
                "job_id": st.text(max_size=8) | st.integers(),
                "priority": st.integers(-200, 200) | st.text(max_size=3),
                "scheduled_at": st.text(max_size=8) | st.datetimes().map(str),
                "force": st.booleans() | st.none(),
                "pipeline": st.text(max_size=5),
            },
        ).map(lambda value: json.dumps(value).encode()),
    ),
)
def test_any_file_ends_in_the_archive_or_among_the_rejected(
    tmp_path_factory: pytest.TempPathFactory, name: str, content: bytes
) -> None:
    folder = tmp_path_factory.mktemp("any")
    try:
        (folder / f"{name}.json").write_bytes(content)
    except OSError:
        return  # the file system refuses the name
    queue = Queue("memory://")
    queue.publish(jobs)
    counts = take(queue, inbox_of(folder))
    hidden = name.startswith(".")
    assert counts.received == (0 if hidden else 1)
    left = names(folder)
    assert left == ([f"{name}.json"] if hidden else [])
    if not hidden:
        assert len(names(folder / "archive")) + len(names(folder / "rejected")) // 2 == 1


def test_a_worker_takes_a_file_when_it_appears(folder: Path, memory: Queue) -> None:
    memory.receive(FolderInbox(folder, pipeline="jobs", interval="1h"))
    with working(memory, jobs):
        until(lambda: (folder / "archive").is_dir(), "the first look")
        time.sleep(0.3)  # the notification starts
        drop(folder, {"job_id": "a"})
        until(lambda: any(task.ended for task in memory.find().tasks), "the task")


def test_a_worker_until_idle_runs_the_jobs_of_the_files(folder: Path, memory: Queue) -> None:
    for number in range(150):
        (folder / f"{number}.json").write_text(f'{{"job_id": {number}}}')
    memory.receive(inbox_of(folder))
    work(memory, jobs)
    assert names(folder) == []
    assert {task.status for task in memory.find(limit=200).tasks} == {Status.COMPLETED}
    assert len(memory.find(limit=200).tasks) == 150


def test_the_pipeline_of_an_inbox_may_be_a_pipeline(folder: Path) -> None:
    queue = Queue("memory://")
    (folder / "one.json").write_text('{"job_id": "j1"}')
    queue.receive(inbox_of(folder, pipeline=jobs))
    work(queue)  # the queue serves the pipeline of its inbox
    assert queue.get("j1").status is Status.COMPLETED


def test_a_worker_takes_files_at_an_interval_without_notifications(folder: Path, memory: Queue) -> None:
    memory.receive(FolderInbox(folder, pipeline="jobs", interval="100ms", watch=False))
    with working(memory, jobs):
        drop(folder, {"job_id": "a"})
        until(lambda: any(task.ended for task in memory.find().tasks), "the task")


def test_the_users_own_format_is_read_by_a_function(folder: Path, memory: Queue) -> None:
    from onerow.core.addition import Addition
    from onerow.core.messages import AddTasks

    def read(message: Message) -> AddTasks:
        return AddTasks("jobs", (Addition({"lines": message.body.count("\n")}),))

    (folder / "a.txt").write_text("1\n2\n")
    (folder / "b.json").write_text("{}")
    take(memory, inbox_of(folder, read=read))
    assert sorted(task.payload["lines"] for task in memory.find().tasks) == [0, 2]


def test_a_failing_function_rejects_the_message_and_nothing_else(folder: Path, memory: Queue) -> None:
    def read(message: Message) -> Any:
        raise KeyError("video")

    (folder / "a.json").write_text("{}")
    assert take(memory, inbox_of(folder, read=read)).rejected == 1
    assert "KeyError" in reason(folder, "a.json")


def test_a_queue_receives_from_a_url(folder: Path) -> None:
    queue = Queue("memory://")
    queue.receive(f"folder://{folder}", pipeline=jobs)
    assert [inbox.name for inbox in queue.inboxes] == [f"folder:{folder}"]
    assert "jobs" in queue.pipelines
    with pytest.raises(BadInput, match="already receives"):
        queue.receive(f"folder://{folder}")
    for wrong in ("folder://", "queue/", "ftp://x"):
        with pytest.raises(BadInput, match="folder:///absolute"):
            queue.receive(wrong)
