"""A worker process whose handlers use up its file descriptors or threads: only the tasks that do it fail."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from onerow import Filter, Queue, Status

PATIENCE = 900.0

pytestmark = [pytest.mark.faults, pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limits")]

APP = '''
import asyncio
import os
import resource
import threading

from onerow import Pipeline, Retry

resource.setrlimit(resource.RLIMIT_NOFILE, (160, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

threads, loop, items, commands = (Pipeline(name) for name in ("threads", "loop", "items", "commands"))
leaked = []
SOON = Retry(2, wait="1ms")


def act(job):
    """Use a file as good tasks do; or leak all descriptors, silently or until it fails."""
    if job == "good":
        with open(os.devnull) as file:
            return file.read()
    try:
        while True:
            leaked.append(open(os.devnull))
    except OSError:
        if job == "loud":
            raise


@threads.phase(retry=SOON)
def run(job: str) -> str | None:
    return act(job)


@loop.phase(name="run", retry=SOON)
async def arun(job: str) -> str | None:
    await asyncio.sleep(0.01)
    if job == "good":
        # It hides the cause, as many libraries do.
        try:
            return act(job)
        except OSError:
            raise ValueError("the service could not be found") from None
    return act(job)


@items.batch("run", size=4, within="10ms", retry=SOON)
def act_on_all(items):
    for item in items:
        item.done(act(item.payload))


commands.command("echo", ["echo", "{ctx.attempt}"], retry=SOON)
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    return tmp_path


def onerow(project: Path, url: str, *words: str) -> str:
    """Run a command and return its error output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ONEROW_")}
    done = subprocess.run(
        [sys.executable, "-m", "onerow", *words, "--store", url], cwd=project, env=environment, capture_output=True,
        text=True, timeout=PATIENCE, check=True,
    )  # fmt: skip
    return done.stderr


@pytest.mark.parametrize("store", ["sqlite_url", "postgres_url", "mongo_url"])
def test_leaked_file_descriptors_fail_only_the_task_that_cannot_do_without_them(
    project: Path, store: str, request: pytest.FixtureRequest
) -> None:
    url: str = request.getfixturevalue(store)
    onerow(project, url, "publish", "app")
    queue = Queue(url)
    for pipeline in ("threads", "loop", "items"):
        queue.add_many(pipeline, ["good"] * 3 + ["quiet"] + ["good"] * 3 + ["loud"] + ["good"] * 4)
    queue.add_many("commands", ["good"] * 4)
    said = onerow(project, url, "worker", "app", "--until-idle", "-c", "8")
    assert "ran out of resources (OSError: [Errno 24] Too many open files" in said
    assert "another starts" in said
    tasks = queue.find(Filter(), limit=1000).tasks
    queue.close()
    assert len(tasks) == 3 * 12 + 4
    for task in tasks:
        if task.payload == "loud":
            assert (task.status, task.error_class, task.retry_count) == (Status.FAILED, "resource", 2), task.history
            # Once in the shared process, then only in its own.
            assert [entry.what for entry in task.history].count("rescued") <= 1
        else:
            assert (task.status, task.retry_count) == (Status.COMPLETED, 0), task.history
