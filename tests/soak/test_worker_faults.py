"""Faults inside a real worker of the soak: a held GIL, and a death that no other worker can prove."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from onerow import Queue
from onerow.soak import hooks, workload
from onerow.soak.checks import recovery_times
from onerow.soak.crew import Crew
from onerow.soak.records import Record, read_records
from onerow.soak.report import read_history
from onerow.soak.run import Soak, run
from onerow.soak.schedule import Fault
from tests.engine.kit import until

pytestmark = pytest.mark.faults

HELD_FOR = 1.0


@dataclass
class Running:
    """A worker whose identity is hidden, as the fault hide-proc does it."""

    folder: Path
    queue: Queue
    pid: int

    def records(self, *kinds: str) -> list[Record]:
        return [each for each in read_records(self.folder) if each.what in kinds]


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("soak")
    control = folder / "control"
    control.mkdir()
    url = f"sqlite:///{folder / 'soak.db'}"
    queue = Queue(url)
    queue.publish(workload.soak, workload.leaves, workload.ticks)
    env = {workload.FOLDER: str(folder), workload.STORE: url, workload.LEASE: "60s", hooks.CONTROL: str(control)}
    crew = Crew(1, folder, env, concurrency=2)
    crew.teams[0].extra[hooks.HIDE_PROC] = "1"
    try:
        crew.keep_running()
        until(lambda: queue.store.notes("worker"), "the worker")
        yield Running(folder, queue, crew.workers(crew.teams[0])[0])
    finally:
        crew.kill()
        queue.close()


def test_no_other_worker_can_prove_the_death_of_a_hidden_one(worker: Running) -> None:
    (note,) = worker.queue.store.notes("worker")
    assert note.body["pid"] == worker.pid
    assert note.body["boot"] == ""


def test_no_handler_runs_while_the_gil_is_held(worker: Running) -> None:
    job = {"kind": "plain", "in": "", "for": 0.0}
    task = worker.queue.add(workload.soak, job)
    until(lambda: worker.queue.get(task.task_id).ended, "a task before the fault")
    hooks.send(worker.folder / "control", worker.pid, hooks.Order("hold-gil", HELD_FOR))

    def has_worked_after_it() -> bool:
        worker.queue.add(workload.soak, job)
        held = worker.records("fault")
        return bool(held) and worker.records("begin")[-1].at > held[0].until

    until(has_worked_after_it, "a task after the fault")
    (held,) = worker.records("fault")
    assert (held.name, held.pid) == ("hold-gil", worker.pid)
    worked = worker.records("begin", "end")
    assert max(after.at - before.at for before, after in pairwise(worked)) >= HELD_FOR


@pytest.mark.slow
def test_tasks_of_hidden_workers_are_rescued_only_after_their_lease(tmp_path: Path) -> None:
    lease = 4.0
    faults = [Fault(0.05, "hide-proc", 0), Fault(0.5, "kill-group", 0)]
    url = f"sqlite:///{tmp_path / 'soak.db'}"
    given = Soak(url, tmp_path / "records", 150, 3, faults, 2, 4, lease=lease, pace=0.8, recovery=3600.0)
    run(given, lambda line: None)
    history, _ = read_history(tmp_path / "records")
    waited = [each.seconds for each in recovery_times(history)]
    assert waited
    assert min(waited) >= lease
