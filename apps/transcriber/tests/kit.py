"""Helpers for tests: recordings, jobs that run in this process, and worker processes that can be killed."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import imageio_ffmpeg
import psutil
import pytest

from apps.transcriber.tests.model_server import ModelServer
from onerow import Queue, Task, Worker
from onerow.engine.receiving.receiver import Receiver
from tests.marked_processes import kill_all, living
from transcriber import open_queue
from transcriber.inbox import QueueFolder
from transcriber.measure import samples
from transcriber.settings import Settings

PATIENCE = 900.0
GPT = "gpt-4o-mini-transcribe"
KEY = "sk-test-canary-0123456789abcdef"
T = TypeVar("T")


def until(look: Callable[[], T], what: str = "it") -> T:
    """Call `look` until it returns a true value; return that value."""
    deadline = time.monotonic() + PATIENCE
    while not (found := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come in {PATIENCE:.0f} s; the last look found {found!r}")
        time.sleep(0.1)
    return found


@contextlib.contextmanager
def home_at(tmp_path: Path) -> Iterator[Path]:
    """Set TRANSCRIBER_HOME to a folder whose name is not plain ASCII, with quick retries and a clean environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("TRANSCRIBER_", "OPENAI_")):
                patch.delenv(name)
        folder = tmp_path / "전사 1"
        patch.setenv("TRANSCRIBER_HOME", str(folder))
        patch.setenv("TRANSCRIBER_RETRY_WAIT", "50ms")
        yield folder


@contextlib.contextmanager
def model_server() -> Iterator[ModelServer]:
    """Start an endpoint with OpenAI's API, and media files over HTTP; jobs use it."""
    with ModelServer() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSCRIBER_OPENAI_BASE_URL", f"{server.url}/v1")
        patch.setenv("OPENAI_API_KEY", KEY)
        yield server


def work(**options: Any) -> None:
    """Run all tasks in this process, retries and waits for children included; not those of a later time."""
    terms: dict[str, Any] = {"grace": "60s", "interval": 0.05} | options
    queue = open_queue()

    def is_done() -> bool:
        assert Worker(queue, until_idle=True, **terms).run() == 0
        soon = queue.store.now() + timedelta(minutes=1)
        return all(task.ended or (task.run_at > soon and not task.awaiting) for task in queue.select())

    until(is_done, "the end of all tasks")


def receive(inbox: QueueFolder | None = None) -> Any:
    """Take the files of queue/ once; return the counts."""
    queue = open_queue()
    inbox = inbox or QueueFolder(Settings.of_environment())
    receiver = Receiver(queue, inbox, "test")
    counts = receiver.receive_available()
    receiver.close(queue.store.now())
    inbox.close()
    return counts


def drop(home: Path, name: str, job: Any) -> Path:
    """Write a file into queue/."""
    path = home / "queue" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(job if isinstance(job, str) else json.dumps(job, ensure_ascii=False), encoding="utf-8")
    return path


def ffmpeg(*arguments: str | Path) -> None:
    argv = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-y", *map(str, arguments)]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)


def recording(path: Path, *, speech: Sequence[float] = (1.0,), silence: float = 0.6) -> Path:
    """Write a file with tones in place of speech, and silence between them."""
    parts = "".join(
        f"sine=f={300 + 40 * number}:r=16000:d={seconds}[a{number}];anullsrc=r=16000:d={silence}[b{number}];"
        for number, seconds in enumerate(speech)
    )
    names = "".join(f"[a{number}][b{number}]" for number in range(len(speech)))
    ffmpeg("-filter_complex", f"{parts}{names}concat=n={2 * len(speech)}:v=0:a=1[o]", "-map", "[o]", path)
    return path


def sample(name: str) -> Path:
    """Return a shipped recording of speech."""
    return next(each.audio for each in samples() if each.audio.stem == name)


def log_of(task: Task) -> str:
    """Return the text of the task's log in the store."""
    return "\n".join(line.text for line in open_queue().logs(task.task_id).lines)


class Works:
    """`transcriber worker` as a process that the test can kill."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._log = home.parent / "worker.log"
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, *options: str, program: Sequence[str] = ("transcriber", "worker")) -> subprocess.Popen[bytes]:
        """Start a supervisor and its worker; wait until they are ready."""
        queue: Queue = open_queue()
        before = {note.name for note in queue.store.notes("worker")}
        argv = [sys.executable, "-m", *program, "--interval", "200ms", "--grace", "1s", *options]
        with self._log.open("ab") as output:
            process = subprocess.Popen(argv, env=os.environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        self._started.append(process)
        until(lambda: {note.name for note in queue.store.notes("worker")} - before, f"the worker\n{self.said()}")
        return process

    def said(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]

    def kill(self) -> None:
        """Kill the worker process, and its supervisor, which would delay a new worker."""
        supervisor = self._started[-1]
        workers = psutil.Process(supervisor.pid).children()
        for worker in workers:
            os.kill(worker.pid, signal.SIGKILL)
        supervisor.kill()
        supervisor.wait(PATIENCE)

    def living(self, word: str = "") -> list[psutil.Process]:
        """Return the processes of this transcriber whose command line contains a word."""
        return living("TRANSCRIBER_HOME", str(self._home), word)

    def close(self) -> None:
        kill_all("TRANSCRIBER_HOME", str(self._home), self._started)


@contextlib.contextmanager
def works(home: Path) -> Iterator[Works]:
    made = Works(home)
    try:
        yield made
    finally:
        made.close()


def ended(task_id: str) -> Task:
    """Wait until the task has ended; return it."""
    until(lambda: open_queue().get(task_id).ended, f"the end of {task_id}")
    return open_queue().get(task_id)
