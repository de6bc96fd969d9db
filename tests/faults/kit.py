"""Real workers in their own processes, and ways to kill or freeze them. Every started process is ended, by its pid."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from onerow import Filter, Queue, Status, Task
from tests.engine.kit import PATIENCE, until
from tests.marked_processes import kill_all, living

ROOT = Path(__file__).resolve().parents[2]
MARK = "FAULTS_MARK"
NO_MORE: Mapping[str, str] = {}


class Place:
    """A folder with a database, the notes of handlers, and all processes that were started for it."""

    def __init__(self, folder: Path, url: str = "") -> None:
        self.folder = folder
        self.path = folder / "onerow.db"
        self.url = url or f"sqlite:///{self.path}"
        self.mark = str(folder)  # processes are found by it: no other run has this folder
        self.queue = Queue(self.url)
        self.queue.count()  # creates the tables
        self._started: list[subprocess.Popen[bytes]] = []

    @property
    def environment(self) -> Mapping[str, str]:
        more = {"FAULTS_STORE": self.url, "FAULTS_NOTES": str(self.folder), MARK: self.mark}
        return {**os.environ, **more, "PYTHONPATH": str(ROOT)}

    def run(self, argv: Sequence[str], env: Mapping[str, str] = NO_MORE) -> subprocess.Popen[bytes]:
        """Start a process with this test's environment variable; its output goes to a file."""
        with (self.folder / "output.txt").open("ab") as output:
            process = subprocess.Popen(
                argv,
                cwd=ROOT,
                env={**self.environment, **env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self._started.append(process)
        return process

    def worker(self, *options: str, app: str = "tests.faults.app", env: Mapping[str, str] = NO_MORE) -> "RealWorker":
        """Start `onerow worker` with its supervisor, and wait until it is ready."""
        before = {note.name for note in self.queue.store.notes("worker")}
        argv = [sys.executable, "-m", "onerow", "worker", app, "--grace", "2s", "--interval", "200ms"]
        supervisor = self.run([*argv, *options], env)
        until(lambda: {note.name for note in self.queue.store.notes("worker")} - before, "the worker")
        return RealWorker(self, supervisor)

    def run_to_the_end(self, *options: str) -> int:
        """Run `onerow worker` until it ends by itself; return its exit code."""
        return self.run([sys.executable, "-m", "onerow", "worker", "tests.faults.app", *options]).wait(PATIENCE)

    def notes(self, what: str = "") -> list[list[str]]:
        """Return the notes of handlers: word, pid, task, attempt and more."""
        with contextlib.suppress(FileNotFoundError):
            lines = [line.split() for line in (self.folder / "notes.txt").read_text().splitlines()]
            return [words for words in lines if what in ("", words[0])]
        return []

    def output(self) -> str:
        return (self.folder / "output.txt").read_text(errors="replace")

    def begun(self, task: Task) -> list[str]:
        """Wait until the task has begun; return its first note."""
        until(lambda: [words for words in self.notes("begin") if task.task_id in words], f"the beginning of {task}")
        return next(words for words in self.notes("begin") if task.task_id in words)

    def ended(self, task: Task) -> Task:
        until(lambda: self.queue.get(task.task_id).ended, f"the end of {task.task_id}\n{self.output()[-3000:]}")
        return self.queue.get(task.task_id)

    def everything(self) -> list[Task]:
        return self.queue.find(Filter(), limit=10_000, order="oldest").tasks

    def living(self) -> list[psutil.Process]:
        """Return every running process with this test's environment variable."""
        return living(MARK, self.mark)

    def close(self) -> None:
        kill_all(MARK, self.mark, self._started)
        self.queue.close()


class Crew:
    """Worker processes without a supervisor; a killed one is replaced at once, as an orchestrator does."""

    def __init__(self, place: Place, size: int) -> None:
        self._place = place
        self._workers = [self._start() for _ in range(size)]
        self.kills = 0

    def kill_one(self) -> None:
        """Send SIGKILL to a worker process that holds a task, or to any when all have ended; start another."""
        worker = until(self._worker_to_kill, "a worker that holds a task")
        self._workers.remove(worker)
        worker.kill()
        worker.wait(PATIENCE)
        self.kills += 1
        self._workers.append(self._start())

    def _worker_to_kill(self) -> "subprocess.Popen[bytes] | None":
        tasks = self._place.everything()
        if all(task.ended for task in tasks):
            return self._workers[0]
        holders = {task.leased_by.rsplit("-", 2)[1] for task in tasks if task.leased_by}
        return next((worker for worker in self._workers if str(worker.pid) in holders), None)

    def _start(self) -> subprocess.Popen[bytes]:
        return self._place.run([sys.executable, "-m", "tests.faults.bare_worker"])


class RealWorker:
    """A supervisor and its worker process."""

    def __init__(self, place: Place, supervisor: subprocess.Popen[bytes]) -> None:
        self._place = place
        self.supervisor = supervisor

    def pids(self) -> list[int]:
        """Return the pids of this supervisor's worker processes."""
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(self.supervisor.pid).children()
            return [child.pid for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
        return []

    def pid(self) -> int:
        until(self.pids, "a worker process")
        return self.pids()[0]

    def kill(self, *which: str) -> None:
        """Send SIGKILL to 'worker', 'supervisor' or both, in the given order."""
        pids = {"worker": self.pid(), "supervisor": self.supervisor.pid}
        for name in which:
            os.kill(pids[name], signal.SIGKILL)
        if "supervisor" in which:
            self.supervisor.wait(PATIENCE)

    def terminate(self) -> None:
        self.supervisor.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        return self.supervisor.wait(PATIENCE)


@contextlib.contextmanager
def a_place(folder: Path, url: str = "") -> Iterator[Place]:
    place = Place(folder, url)
    try:
        yield place
    finally:
        place.close()


def freeze(place: Place, pid: int) -> None:
    """Send SIGSTOP to a process while it does not hold the file's write lock, which would block all other processes."""
    for _ in range(100):
        os.kill(pid, signal.SIGSTOP)
        until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED, "the stop")
        with contextlib.closing(sqlite3.connect(place.path, timeout=0.5, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError:
                os.kill(pid, signal.SIGCONT)
    raise AssertionError("the process seems to hold the write lock all the time")


def gone(pid: int) -> bool:
    """Whether a process has ended; a zombie counts as ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    return True


def check_story(task: Task, phases: Sequence[str]) -> None:
    """P4, P5: each phase succeeds at most once, in order, none is skipped, and the row agrees with its history."""
    good = [entry.phase for entry in task.history if entry.what in ("advanced", "completed")]
    assert good == list(phases)[: len(good)], task.history
    assert set(task.results) == set(good)
    if task.status is Status.COMPLETED:
        assert good == list(phases)
        assert (task.leased_by, task.slot, task.key_slot) == (None, None, None)
    elif task.status is Status.PROCESSING:
        assert task.leased_by
        assert task.leased_until
    if not task.ended:
        assert task.phase == phases[len(good)]


@contextlib.contextmanager
def a_small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Mount a file system of a size such as '2m' at a new folder; skip the test where that is not allowed."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, timeout=900, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"can't mount here: {mounted.stderr.decode()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], timeout=900, check=True)
