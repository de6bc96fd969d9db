"""Two releases of an app at the same time, each in real worker processes, on every store that processes can share."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from onerow import Queue, Status, Task
from onerow.engine.control import definitions
from tests.conformance.stores import ENTRIES, Entry
from tests.engine.kit import PATIENCE, everything, until
from tests.faults.kit import ROOT
from tests.faults.rolling import opened, pipeline

OLD, NEW = ["charge", "ship"], ["charge", "pack", "ship", "receipt"]


class Site:
    """A store, and worker processes of either release."""

    def __init__(self, entry: Entry, address: str, folder: Path) -> None:
        self._entry, self._address = entry, address
        self._output = folder / "output.txt"
        self.queue = opened(entry.name, address)
        self.queue.count()
        self._processes: list[subprocess.Popen[bytes]] = []

    def command(self, release: str, *words: str) -> subprocess.Popen[bytes]:
        more = {"ROLLING_RELEASE": release, "ROLLING_ENTRY": self._entry.name, "ROLLING_ADDRESS": self._address}
        with self._output.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "onerow", *words], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output,
                stderr=output, env={**os.environ, **more, "PYTHONPATH": str(ROOT)},
            )  # fmt: skip
        self._processes.append(process)
        return process

    def worker(self, release: str) -> subprocess.Popen[bytes]:
        before = {note.name for note in self.queue.store.notes("worker")}
        process = self.command(release, "worker", "tests.faults.rolling", "--interval", "200ms", "--grace", "2s")
        until(lambda: {note.name for note in self.queue.store.notes("worker")} - before, f"a worker\n{self.output()}")
        return process

    def publish(self, release: str, *options: str) -> int:
        return self.command(release, "publish", "tests.faults.rolling", *options).wait(PATIENCE)

    def output(self) -> str:
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    def end(self, process: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(PATIENCE)
        finally:
            process.kill()

    def close(self) -> None:
        for process in self._processes:
            self.end(process)
        self.queue.close()


_SERVERS = [pytest.param(name, marks=pytest.mark.slow) for name in ("postgres", "mongo")]


@pytest.fixture(params=["sqlite", *_SERVERS])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    entry = ENTRIES[request.param]
    made = Site(entry, entry.fresh(request), tmp_path)
    try:
        yield made
    finally:
        made.close()


def ends(site: Site, tasks: list[Task]) -> list[Task]:
    def ended() -> bool:
        return all(task.ended for task in everything(site.queue) if task.task_id in {each.task_id for each in tasks})

    until(ended, f"the ends of {len(tasks)} tasks\n{site.output()[-3000:]}")
    return [site.queue.get(task.task_id) for task in tasks]


def phases_of(task: Task) -> list[str]:
    return [entry.phase for entry in task.history if entry.what in ("advanced", "completed")]


def add(queue: Queue, release: str, count: int = 30) -> list[Task]:
    return queue.add_many(pipeline(release), range(count))


def test_tasks_follow_the_newest_definition_whichever_release_runs_them(site: Site) -> None:
    site.worker("1")
    first = ends(site, add(site.queue, "1", 3))
    assert [phases_of(task) for task in first] == [OLD] * 3

    assert site.publish("2") == 0
    tasks = add(site.queue, "2")
    until(
        lambda: all(task.phase == "pack" for task in everything(site.queue) if not task.ended),
        "all tasks at the phase that only the new release knows",
    )
    standing = [site.queue.get(task.task_id) for task in tasks]
    assert {(task.phase, task.status) for task in standing} == {("pack", Status.WAITING)}
    assert "other workers must serve pack, receipt" in site.output()

    site.worker("2")
    done = ends(site, tasks)
    assert [(task.status, phases_of(task)) for task in done] == [(Status.COMPLETED, NEW)] * len(tasks)
    assert {task.results["receipt"] for task in done} == {"2"}


def test_an_old_release_that_restarts_publishes_nothing_and_a_rollback_is_explicit(site: Site) -> None:
    assert site.publish("1") == 0
    assert site.publish("2") == 0
    (published,) = site.queue.store.notes(definitions.PLAN)
    old, new = site.worker("1"), site.worker("2")
    assert site.queue.store.notes(definitions.PLAN) == [published]
    tasks = add(site.queue, "2")
    assert [phases_of(task) for task in ends(site, tasks)] == [NEW] * len(tasks)

    assert site.publish("1") == 1
    assert "onerow publish APP --force" in site.output()
    assert site.queue.store.notes(definitions.PLAN) == [published]
    assert site.publish("1", "--force") == 0
    tasks = add(site.queue, "1")
    assert [phases_of(task) for task in ends(site, tasks)] == [OLD] * len(tasks)
    site.end(old)
    site.end(new)
