"""The commands that serve the dashboard: `onerow web` with open streams, `onerow dev`, `onerow demo --web`."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from onerow import Queue
from tests.engine.kit import ended, until

APP = """
from onerow import Pipeline, Queue

queue = Queue("sqlite:///dev.db")
greetings = Pipeline("greetings")


@greetings.phase
def greet(job):
    return f"hello {job['name']}"
"""


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
    """Run a command of onerow in a folder; yield the process and the file of its output. It is killed if still there."""
    log = folder / "output.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "onerow", *arguments], cwd=folder, stdin=subprocess.DEVNULL, stdout=output,
            stderr=output, env=os.environ | {"PYTHONUNBUFFERED": "1"}, start_new_session=True,
        )  # fmt: skip
    try:
        yield process, log
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def address(log: Path) -> str:
    found = until(lambda: re.findall(r"http://127\.0\.0\.1:\d+/", log.read_text()), "the address of the dashboard")
    return str(found[0])


def test_the_server_stops_cleanly_while_pages_are_shown(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'queue.db'}"
    Queue(url).store.close()
    with running(tmp_path, "web", "--store", url, "--port", "0") as (process, log):
        with httpx.stream("GET", f"{address(log)}live?view=tasks", timeout=900) as response:
            lines = response.iter_lines()
            assert next(lines) == "retry: 2000"
            process.send_signal(signal.SIGTERM)
            for _ in lines:
                pass
        assert process.wait(900) == 0
        assert "Traceback" not in log.read_text()


def test_dev_runs_a_worker_and_the_dashboard(tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text(APP)
    with running(tmp_path, "dev", "hello", "--port", "0") as (process, log):
        base = address(log)
        queue = Queue(f"sqlite:///{tmp_path / 'dev.db'}")
        until(lambda: any(worker.phases for worker in _workers(queue)), "the worker")
        task = ended(queue, queue.add("greetings", {"name": "kim"}))
        assert task.result == "hello kim"
        assert "hello kim" in httpx.get(f"{base}task?id={task.task_id}&tab=data", headers={"accept": "text/html"}).text
        (worker,) = _workers(queue)
        queue.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(900) == 0
        until(lambda: not Path(f"/proc/{worker.pid}").exists() or not Path("/proc").exists(), "the end of the worker")


def _workers(queue: Queue):  # type: ignore[no-untyped-def]
    from onerow.engine.views import Views

    return [worker for worker in Views(queue).workers() if worker.alive]


def test_dev_ends_with_its_worker_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text(APP.replace("def greet(job)", "def greet(job:)"))
    with running(tmp_path, "dev", "hello", "--port", "0") as (process, log):
        assert process.wait(900) != 0
        assert "hello.py:9" in log.read_text()


@pytest.mark.slow
def test_the_demo_is_shown_in_the_dashboard(tmp_path: Path) -> None:
    with running(tmp_path, "demo", "--web", "--fast", "--port", "0") as (process, log):
        base = address(log)
        assert "videos" in httpx.get(f"{base}board", headers={"accept": "text/html"}, timeout=900).text
        until(lambda: "The dashboard stays open" in log.read_text(), "the end of the demo")
        process.send_signal(signal.SIGINT)
        assert process.wait(900) == 0
        assert "Traceback" not in log.read_text()
