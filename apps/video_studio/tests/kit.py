"""Helpers for tests: small films, and real worker processes that are always cleaned up."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import psutil
from PIL import Image

from onerow import Queue, Status, Task, Worker
from tests.marked_processes import kill_all, living
from video_studio import open_queue
from video_studio.library import writing

PATIENCE = 900.0
T = TypeVar("T")


def until(look: Callable[[], T], what: str = "it") -> T:
    """Call `look` until it returns a true value; return that value."""
    deadline = time.monotonic() + PATIENCE
    while not (found := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come in {PATIENCE:.0f} s; the last look found {found!r}")
        time.sleep(0.01)
    return found


def at(task: Task | str, phase: str, status: str) -> Task:
    """Wait until the task is in a phase and status; return it."""
    task_id = task if isinstance(task, str) else task.task_id

    def look() -> Task | None:
        found = open_queue().get(task_id)
        return found if (found.phase, found.status) == (phase, status) else None

    found = until(look, f"{task_id} {status} at {phase}; it is {open_queue().get(task_id)}")
    assert found is not None
    return found


def ended(task: Task | str) -> Task:
    """Wait until the task has ended; return it."""
    task_id = task if isinstance(task, str) else task.task_id
    until(lambda: open_queue().get(task_id).ended, f"the end of {task_id}")
    return open_queue().get(task_id)


def work(**options: Any) -> None:
    """Run all due tasks in this thread."""
    terms: dict[str, Any] = {"grace": "1s", "interval": 0.05} | options
    assert Worker(open_queue(), until_idle=True, **terms).run() == 0


def row_only(task_id: str, **more: Any) -> Task:
    """Add a queue's row without the app's row."""
    return open_queue().add("videos", {}, task_id=task_id, user_id="u1", **more)


def joined(task_id: str, topic: str = "tides", *, draw: bool = False) -> None:
    """Add only the app's row."""
    with writing() as tx:
        tx.execute("INSERT INTO task (task_id, topic, draw) VALUES (?, ?, ?)", (task_id, topic, draw))


def picture(path: Path, colour: str = "navy") -> Path:
    Image.new("RGB", (64, 36), colour).save(path)
    return path


def good(task: Task) -> list[str]:
    """Return the phases that succeeded, in order."""
    return [entry.phase for entry in task.history if entry.what in ("passed", "advanced", "completed")]


class Works:
    """`onerow worker video_studio.app` as a process that the test can kill."""

    def __init__(self, home: Path, **environment: str) -> None:
        self._home = home
        self._environment = environment
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        """Start a supervisor and its worker; wait until they are ready."""
        queue: Queue = open_queue()
        before = {note.name for note in queue.store.notes("worker")}
        argv = [sys.executable, "-m", "onerow", "worker", "video_studio.app", "--interval", "200ms", "--grace", "1s"]
        with (self._home / "worker.log").open("ab") as output:
            process = subprocess.Popen(
                [*argv, *options],
                env=os.environ | self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self._started.append(process)
        until(lambda: {note.name for note in queue.store.notes("worker")} - before, f"the worker\n{self.said()}")
        return process

    def said(self) -> str:
        return (self._home / "worker.log").read_text(errors="replace")[-3000:]

    def kill(self) -> None:
        """Kill the worker process, and its supervisor, which would delay a new worker."""
        supervisor = self._started[-1]
        (worker,) = until(self._workers, "a worker process")
        os.kill(worker.pid, signal.SIGKILL)
        supervisor.kill()
        supervisor.wait(PATIENCE)

    def _workers(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.Error):
            children = psutil.Process(self._started[-1].pid).children()
            return [child for child in children if child.status() != psutil.STATUS_ZOMBIE]
        return []

    def living(self, word: str = "") -> list[psutil.Process]:
        """Return the processes of this studio whose command line contains a word."""
        return living("STUDIO_HOME", str(self._home), word)

    def close(self) -> None:
        kill_all("STUDIO_HOME", str(self._home), self._started)


@contextlib.contextmanager
def works(home: Path, **environment: str) -> Iterator[Works]:
    made = Works(home, **environment)
    try:
        yield made
    finally:
        made.close()


def processing(phase: str) -> Callable[[], list[Task]]:
    """Return a function that finds the processing tasks of a phase."""
    from onerow import Filter

    where = Filter(pipeline="videos", phases=frozenset({phase}), statuses=frozenset({Status.PROCESSING}))
    return lambda: list(open_queue().select(where))
