"""status/JOB.json: programs that only read folders see the state of their jobs."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from onerow import Queue
from onerow.engine.receiving.receiver import Receiver
from onerow.inboxes.folder import FolderInbox, drop
from onerow.inboxes.folder_status import FolderStatus
from tests.engine.kit import until, work, working
from tests.inboxes.test_folder import folder, inbox_of, jobs, memory, names, take

__all__ = ["folder", "memory"]


def state(folder: Path, job: str) -> Any:
    return json.loads((folder / "status" / f"{job}.json").read_text())


def mirrored(folder: Path, **options: Any) -> FolderInbox:
    return inbox_of(folder, status=True, **options)


def test_the_state_of_a_job_is_shown_from_its_row_to_its_end(folder: Path, memory: Queue) -> None:
    inbox = mirrored(folder)
    drop(folder, {"job_id": "a", "title": "영상", "n": 7}, name="x.json")
    take(memory, inbox)
    assert (state(folder, "a")["status"], state(folder, "a")["title"]) == ("waiting", "영상")
    work(memory, jobs)
    take(memory, inbox)
    done = state(folder, "a")
    assert (done["status"], done["results"]["run"]["n"]) == ("completed", 7)
    assert done["ended_at"]
    assert names(folder / "status" / ".open") == []


def test_a_folder_has_no_status_files_unless_it_is_asked_to(folder: Path, memory: Queue) -> None:
    drop(folder, {"job_id": "a"})
    take(memory, inbox_of(folder))
    assert not (folder / "status").exists()


def test_a_worker_that_starts_later_shows_the_end(folder: Path, memory: Queue) -> None:
    drop(folder, {"job_id": "a"})
    take(memory, mirrored(folder))
    work(memory, jobs)
    assert state(folder, "a")["status"] == "waiting"
    take(memory, mirrored(folder))  # another process
    assert state(folder, "a")["status"] == "completed"


def test_a_killed_receiver_that_had_stored_the_row_leaves_no_job_without_a_state(folder: Path, memory: Queue) -> None:
    drop(folder, {"job_id": "a"})
    killed = mirrored(folder)
    killed.acknowledge = lambda messages: killed.release(messages, 0.0)  # type: ignore[method-assign]
    Receiver(memory, killed, "w1").store(killed.receive(0))
    take(memory, mirrored(folder))
    assert state(folder, "a")["status"] == "waiting"


def test_a_job_that_runs_again_is_shown_again(folder: Path, memory: Queue) -> None:
    inbox = mirrored(folder)
    drop(folder, {"job_id": "a"})
    take(memory, inbox)
    work(memory, jobs)
    take(memory, inbox)
    drop(folder, {"job_id": "a", "force": True})
    take(memory, inbox)
    assert state(folder, "a")["status"] == "waiting"


def test_each_item_of_a_list_has_a_state(folder: Path, memory: Queue) -> None:
    (folder / "a.txt").write_text("http://1\nhttp://2\n")
    take(memory, mirrored(folder))
    tasks = memory.find().tasks
    assert sorted(names(folder / "status")) == sorted(f"{task.task_id}.json" for task in tasks)


def test_a_job_whose_row_does_not_exist_is_said_to_be_missing(folder: Path, memory: Queue) -> None:
    """Another job had the same unique key, or the row was purged."""
    drop(folder, {"job_id": "a", "unique": "k"}, name="1.json")
    drop(folder, {"job_id": "b", "unique": "k"}, name="2.json")
    os.utime(folder / "1.json", (1, 1))
    take(memory, mirrored(folder))
    assert state(folder, "b") == {"job_id": "b", "status": "not found"}


@pytest.mark.parametrize("job", ["..", ".hidden", "-rf", "조" * 150])
def test_an_id_that_is_no_good_file_name_gets_another_name(folder: Path, memory: Queue, job: str) -> None:
    drop(folder, {"job_id": job})
    take(memory, mirrored(folder))
    (path,) = (folder / "status").glob("*.json")
    assert json.loads(path.read_text())["job_id"] == job
    take(memory, mirrored(folder))
    work(memory, jobs)
    take(memory, mirrored(folder))
    assert json.loads(path.read_text())["status"] == "completed"


def test_an_unchanged_state_is_not_written_again(folder: Path, memory: Queue) -> None:
    inbox = mirrored(folder)
    drop(folder, {"job_id": "a"})
    take(memory, inbox)
    before = (folder / "status" / "a.json").stat().st_ino
    take(memory, inbox)
    assert (folder / "status" / "a.json").stat().st_ino == before


def test_many_open_jobs_take_turns(tmp_path: Path, memory: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onerow.inboxes.folder_status._AT_ONCE", 2)
    status = FolderStatus(tmp_path)
    status.make_folders()
    tasks = memory.add_many("jobs", [{}] * 5)
    status.follow(task.task_id for task in tasks)
    asked: set[str] = set()
    for _ in range(3):
        ids = status.followed()
        assert len(ids) == 2
        asked |= set(ids)
        status.show(ids, memory.store.fetch(ids))
    assert asked == {task.task_id for task in tasks}


def test_a_worker_shows_the_end_of_its_jobs(folder: Path, memory: Queue) -> None:
    memory.receive(mirrored(folder, interval="100ms"))
    with working(memory, jobs):
        drop(folder, {"job_id": "a"})
        path = folder / "status" / "a.json"
        until(lambda: path.exists() and state(folder, "a")["status"] == "completed", "the shown end")
