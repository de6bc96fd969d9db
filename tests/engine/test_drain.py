"""A worker that an operator asks to drain finishes its tasks and ends; no other process takes its place."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from onerow import Queue
from onerow.core.errors import BadInput, UnknownName
from onerow.core.status import Status
from onerow.engine.control.definitions import PULLER, WORKER
from onerow.engine.views import Views
from onerow.ports import Note

APP = """
import time
from onerow import Pipeline, Queue

videos = Pipeline("videos")

@videos.phase(concurrency=1)
def render(job):
    time.sleep(job["seconds"])
"""


def test_a_drained_worker_finishes_its_task_and_the_supervisor_ends(tmp_path: Path, sqlite_url: str) -> None:
    (tmp_path / "app.py").write_text(APP)
    queue = Queue(sqlite_url)
    queue.store.prepare()
    command = [sys.executable, "-m", "onerow", "worker", "app", "--store", sqlite_url]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 100
        while not any(worker.alive for worker in Views(queue).workers()):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        running, waiting = (queue.add("videos", {"seconds": 8}), queue.add("videos", {"seconds": 0}))
        while queue.get(running.task_id).status is not Status.PROCESSING:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        (worker,) = Views(queue).workers()
        queue.drain(worker.name, by="ann")
        assert process.wait(900) == 0
        assert queue.get(running.task_id).status is Status.COMPLETED
        assert queue.get(waiting.task_id).status is Status.WAITING
        assert Views(queue).workers() == []
        assert queue.store.notes("drain") == []
        assert "asked to drain" in (tmp_path / "log").read_text()
    finally:
        process.kill()
        process.wait()
        queue.close()


def test_only_live_workers_can_be_drained(sqlite_url: str) -> None:
    queue = Queue(sqlite_url)
    queue.store.prepare()
    try:
        with pytest.raises(UnknownName, match="no live worker 'w9'"):
            queue.drain("w9")
        queue.store.write_notes([Note(WORKER, "p1", {"kind": PULLER})])
        with pytest.raises(BadInput, match="p1 is a puller"):
            queue.drain("p1")
    finally:
        queue.close()
