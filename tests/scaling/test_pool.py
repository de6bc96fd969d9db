"""`onerow worker --processes MIN..MAX`: real processes that come and go with the work, and its probes."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from onerow import Pipeline, Queue, Status
from onerow.cli.main import main
from onerow.core.scaling import ScaleSettings
from onerow.engine.worker.pool_scaler import PoolScaler
from onerow.engine.worker.worker_process import Need, WorkerProcess
from onerow.stores.sqlite import SqliteStore
from tests.engine.kit import PATIENCE, until

ROOT = Path(__file__).parents[2]


class Pool:
    """`onerow worker` in its own process, with a store that the test reads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.queue = Queue(SqliteStore(folder / "onerow.db"))
        self.queue.store.prepare()
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("ONEROW_")}
        self.env |= {"SCALING_TEST_STORE": self.queue.url, "PYTHONPATH": str(ROOT)}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        argv = [sys.executable, "-m", "onerow", "worker", "tests.scaling.app", "--concurrency", "1", *options]
        with (self.folder / "log.txt").open("wb") as log:
            self._process = subprocess.Popen(argv, env=self.env, cwd=self.folder, stderr=log)

    @property
    def log(self) -> str:
        return (self.folder / "log.txt").read_text()

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None
        return self._process

    def workers(self) -> list[str]:
        """The registered workers that don't drain."""
        return [note.name for note in self.queue.store.notes("worker") if not note.body["draining"]]

    def wait_for_workers(self, count: int) -> list[str]:
        until(lambda: len(self.workers()) == count, f"{count} workers; {self.log}")
        return self.workers()

    def add(self, count: int) -> Path:
        """Add tasks that run until the returned file exists."""
        file = self.folder / f"go{count}"
        self.queue.add_many("clips", [{"until": str(file)} for _ in range(count)])
        return file

    def running(self) -> int:
        return len(self.queue.store.leases(limit=100))

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            supervisor = psutil.Process(self._process.pid)
            for each in [supervisor, *supervisor.children(recursive=True)]:
                each.kill()
            self._process.wait()
        self.queue.close()


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    made = Pool(tmp_path)
    yield made
    made.close()


def test_processes_grow_and_shrink_with_the_work_and_no_busy_one_is_stopped(pool: Pool) -> None:
    pool.start("--processes", "1..3", "--scale-in-after", "1s")
    (first,) = pool.wait_for_workers(1)
    three = pool.add(3)
    workers = pool.wait_for_workers(3)
    assert first in workers
    until(lambda: pool.running() == 3, "three running tasks")
    assert len({lease.leased_by for lease in pool.queue.store.leases(limit=10)}) == 3
    one = pool.add(1)
    three.touch()  # three tasks end; one takes the first slot that becomes free
    until(lambda: pool.running() == 1, "one running task")
    (left,) = pool.wait_for_workers(1)
    until(lambda: "fewer are needed" in pool.log, "the end of the others")
    (lease,) = pool.queue.store.leases(limit=10)
    assert lease.leased_by == left  # an idle process was retired, not the busy one
    one.touch()
    until(lambda: pool.running() == 0, "the end of the last task")
    assert pool.stop() == 0
    tasks = pool.queue.find("").tasks
    assert {(task.status, task.attempt) for task in tasks} == {(Status.COMPLETED, 1)}


def test_with_until_idle_processes_leave_together(pool: Pool) -> None:
    clips = Pipeline("clips")

    @clips.phase
    def video(job: dict[str, Any]) -> None: ...

    pool.queue.publish(clips)
    first = pool.add(1)
    pool.start("--processes", "2", "--until-idle")
    pool.wait_for_workers(2)
    until(lambda: pool.running() == 1, "a running task")
    time.sleep(2)  # enough for the other process to find that nothing is due
    second = pool.add(2)
    until(lambda: pool.running() == 2, "a task in the other process")
    second.touch()
    until(lambda: pool.running() == 1, "the end of the tasks in the other process")
    first.touch()
    assert pool.process.wait(PATIENCE) == 0
    assert {task.status for task in pool.queue.find("").tasks} == {Status.COMPLETED}


def ask(port: int, path: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_probes_are_true_while_the_worker_claims_and_not_ready_while_it_drains(pool: Pool) -> None:
    pool.start("--health", "0", "--grace", "1h")
    (name,) = pool.wait_for_workers(1)
    port = port_of(pool)
    until(lambda: ask(port, "/readyz")[0] == 200, "ready")
    code, state = ask(port, "/livez")
    assert (code, state["live"], len(state["processes"])) == (200, True, 1)
    file = pool.add(1)
    until(lambda: pool.running() == 1, "a running task")
    pool.process.send_signal(signal.SIGTERM)
    until(lambda: ask(port, "/readyz")[0] == 503, "not ready")
    code, state = ask(port, "/livez")
    assert (code, state["stopping"]) == (200, True)  # it lives: a probe must not end its task
    until(lambda: doctor(pool, name) == 1, "doctor says that it drains")
    file.touch()
    assert pool.process.wait(PATIENCE) == 0
    assert doctor(pool, name) == 1
    assert pool.queue.find("").tasks[0].status is Status.COMPLETED


def port_of(pool: Pool) -> int:
    until(lambda: "probes at http://127.0.0.1:" in pool.log, "the port")
    return int(pool.log.partition("probes at http://127.0.0.1:")[2].partition("/")[0])


def test_a_worker_that_an_operator_drains_is_not_ready_and_a_stop_of_it_ends_with_0(pool: Pool) -> None:
    pool.start("--health", "0", "--grace", "1h")
    (name,) = pool.wait_for_workers(1)
    port = port_of(pool)
    file = pool.add(1)
    until(lambda: pool.running() == 1, "a running task")
    until(lambda: ask(port, "/readyz")[0] == 200, "ready")
    pool.queue.drain(name)
    until(lambda: ask(port, "/readyz")[0] == 503, "not ready")
    code, state = ask(port, "/livez")
    assert (code, state["stopping"], state["processes"][0]["draining"]) == (200, False, True)
    pool.process.send_signal(signal.SIGTERM)
    until(lambda: ask(port, "/livez")[1]["stopping"], "the stop")
    file.touch()
    assert pool.process.wait(PATIENCE) == 0
    assert pool.queue.find("").tasks[0].status is Status.COMPLETED


def test_a_frozen_process_is_not_ready_until_it_continues(pool: Pool) -> None:
    pool.start("--health", "0")
    port = port_of(pool)
    until(lambda: ask(port, "/readyz")[0] == 200, "ready")
    pid = ask(port, "/livez")[1]["processes"][0]["pid"]
    frozen = psutil.Process(pid)
    frozen.suspend()
    until(lambda: ask(port, "/readyz")[0] == 503, "not ready")
    code, state = ask(port, "/livez")
    assert code == 200  # its supervisor will replace it
    assert (state["processes"][0]["pid"], state["processes"][0]["silent_s"] >= 5) == (pid, True)
    frozen.resume()
    until(lambda: ask(port, "/readyz")[0] == 200, "ready again")
    assert pool.stop() == 0


def metrics(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {
            "/".join([sample.name, *sample.labels.values()]): sample.value
            for family in families
            for sample in family.samples
        }


def test_the_port_of_the_probes_has_the_counters_of_all_processes_also_of_those_that_ended(pool: Pool) -> None:
    pool.start("--health", "0")
    pool.wait_for_workers(1)
    port = port_of(pool)
    pool.add(1).touch()
    until(lambda: metrics(port)["onerow_settled_total"] == 1, "a settled attempt")
    found = metrics(port)
    assert found["onerow_claims_total/got"] >= 1
    assert found["onerow_wakeups_total/notify"] + found["onerow_wakeups_total/poll"] >= 1
    assert (found["onerow_worker_processes"], found["onerow_lease_lost_total"]) == (1, 0)
    (worker,) = pool.queue.store.notes("worker")
    os.kill(int(worker.body["pid"]), signal.SIGKILL)
    pool.add(1).touch()
    until(lambda: metrics(port)["onerow_settled_total"] == 2, "the count of both processes")


def doctor(pool: Pool, worker: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--worker", worker, "--store", pool.queue.url], prog_name="onerow")
    return int(ended.value.code or 0)


def test_doctor_checks_one_worker_by_its_name_or_host(pool: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    pool.start()
    (name,) = pool.wait_for_workers(1)
    host = pool.queue.store.notes("worker")[0].body["host"]
    assert doctor(pool, name) == 0
    assert doctor(pool, host) == 0
    assert f"worker {name} claims" in capsys.readouterr().out
    assert doctor(pool, "other") == 1
    note = pool.queue.store.notes("worker")[0]
    pool.process.send_signal(signal.SIGTERM)
    assert pool.process.wait(PATIENCE) == 0
    stuck = type(note)("worker", name, note.body | {"overdue": 40.0})
    pool.queue.store.write_notes([stuck])
    assert doctor(pool, name) == 1
    assert "should have claimed 40 s ago" in capsys.readouterr().out


def test_the_largest_need_that_a_process_reports_counts() -> None:
    """One read the store before the others claimed: the sum of running and waiting work says more than what waits."""
    needs = [Need(to_start=1, running=0, upkeep=0), Need(to_start=0, running=3, upkeep=0)]
    processes = [WorkerProcess() for _ in needs]
    for process, need in zip(processes, needs, strict=True):
        process.need = need
    decision = PoolScaler(ScaleSettings(slots=1, minimum=1, maximum=8)).tick(processes, 0.0)
    assert decision is not None
    assert decision.workers == 3


@pytest.mark.parametrize("value", ["0", "3..1", "0..4", "1..", "many", "1..257"])
def test_a_wrong_number_of_processes_is_rejected(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["worker", "app", "--processes", value], prog_name="onerow")
    assert ended.value.code == 2
    assert "--processes" in capsys.readouterr().err


def test_an_address_that_the_probes_cannot_have_is_refused_with_its_cause(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for address, cause in ((str(port), "in use"), (f"no.such.host.invalid:{port}", "name")):
            with pytest.raises(SystemExit) as ended:
                main(["worker", "tests.scaling.app", "--health", address], prog_name="onerow")
            assert ended.value.code == 64
            said = capsys.readouterr().err
            assert "can't listen on" in said
            assert cause in said.partition(f"{port}: ")[2].lower()


def test_a_worker_notifies_the_service_manager(pool: Pool) -> None:
    """As systemd sees it with Type=notify and WatchdogSec."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(pool.folder / "notify"))
        manager.settimeout(PATIENCE)
        pool.env |= {"NOTIFY_SOCKET": str(pool.folder / "notify"), "WATCHDOG_USEC": "300000"}
        pool.start()
        seen: set[str] = set()
        while not {"READY=1", "WATCHDOG=1"} <= seen:
            seen |= set(manager.recv(4096).decode().splitlines())
        assert "STOPPING=1" not in seen
        pool.process.send_signal(signal.SIGTERM)
        while "STOPPING=1" not in seen:
            seen |= set(manager.recv(4096).decode().splitlines())
    assert pool.process.wait(PATIENCE) == 0
