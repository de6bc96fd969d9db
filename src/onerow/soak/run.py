"""A soak from its first task to its last check: feeds tasks, keeps workers running, injects faults, collects the rows."""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from onerow.core.errors import BadInput, StoreError
from onerow.core.filters import Filter
from onerow.core.status import COMPLETED, PROCESSING, WAITING
from onerow.core.task import Task
from onerow.engine.queue.compare_and_swap import pages
from onerow.engine.queue.queue import Queue
from onerow.soak import hooks, workload
from onerow.soak.crew import Crew
from onerow.soak.feeding import Feeder
from onerow.soak.injecting import Injector, Restartable
from onerow.soak.proxy import Proxy
from onerow.soak.records import Recorder
from onerow.soak.schedule import OPERATIONS, Fault, write_plan
from onerow.soak.tail import Tail
from onerow.soak.workload import CHILDREN, digest, leaves, soak, ticks, worker_pid
from onerow.wiring import open_store

_PROXIED = frozenset({"cut", "lost-answer", "delay"})
_SQLITE_ONLY = frozenset({"write-lock", "disk-full"})
_LARGEST_DISK = 1 << 30  # bytes; a full one must be cheap and hit no other program
_TRY_FAULT_FOR = 30.0  # seconds, for a fault that has no target: all workers may be starting


@dataclass(frozen=True)
class Soak:
    """What to run. pace: seconds of the longest body. server: needed by the fault restart-store."""

    url: str
    folder: Path
    tasks: int
    seed: int
    faults: Sequence[Fault]
    workers: int = 4
    concurrency: int = 8
    lease: float = 5.0
    pace: float = 0.4
    recovery: float = 3.0  # seconds after the lease within which a lost task must run again
    server: Restartable | None = None
    patience: float = 120.0  # seconds without progress after which the run is given up

    @property
    def database(self) -> Path | None:
        """The SQLite file, if the store is one."""
        path: Path | None = getattr(open_store(self.url), "path", None) if self.url.startswith("sqlite:") else None
        return path

    def check(self) -> None:
        """Raise BadInput if a fault can't be injected into this store."""
        names = {fault.name for fault in self.faults}
        if not Path("/proc/self/environ").exists():
            raise BadInput("a soak needs Linux: it finds its processes in /proc", field="faults")
        if self.url.startswith("memory:"):
            raise BadInput(
                "worker processes cannot share a store in memory", fix="use sqlite:///soak.db", field="store"
            )
        if self.database is None and names & _SQLITE_ONLY:
            raise BadInput(f"{min(names & _SQLITE_ONLY)} is a fault for SQLite", fix="leave it out", field="faults")
        if self.database is not None and names & (_PROXIED | {"restart-store"}):
            wrong = min(names & (_PROXIED | {"restart-store"}))
            raise BadInput(f"{wrong} is a fault for a server, not for a file", fix="leave it out", field="faults")
        if "restart-store" in names and self.server is None:
            raise BadInput("nothing says how to restart the store", fix="add --restart-command", field="faults")
        if "disk-full" in names and shutil.disk_usage(self._disk).total > _LARGEST_DISK:
            raise BadInput(
                "disk-full fills the whole file system of the database, which is larger than 1 GB",
                fix="put the database on a small one: mount -t tmpfs -o size=64m tmpfs FOLDER",
                field="faults",
            )

    @property
    def _disk(self) -> Path:
        assert self.database is not None
        return self.database.parent


def run(given: Soak, show: Callable[[str], None]) -> None:
    """Run a soak; its folder then has the records for the checks. `show` gets a line about the progress now and then."""
    given.check()
    given.folder.mkdir(parents=True, exist_ok=True)
    if any(given.folder.glob("*.jsonl")):
        raise BadInput(f"{given.folder} has the records of another soak", fix="give a new folder", field="dir")
    queue = Queue(open_store(given.url))
    try:
        queue.publish(soak, leaves, ticks)
        if queue.find(Filter(pipeline=soak.name), limit=1).tasks:
            raise BadInput("the store has tasks of another soak", fix="give an empty store", field="store")
        _Run(given, queue, show).run()
    finally:
        queue.close()


class _Run:
    def __init__(self, given: Soak, queue: Queue, show: Callable[[str], None]) -> None:
        self._given, self._queue, self._show = given, queue, show
        self._recorder = Recorder(given.folder, "driver")
        self._feeds = Recorder(given.folder, "feeder")
        self._proxy, url = self._connect()
        control = given.folder / "control"
        control.mkdir()
        env = {
            workload.FOLDER: str(given.folder), workload.STORE: url, workload.LEASE: f"{given.lease}s",
            hooks.CONTROL: str(control),
        }  # fmt: skip
        self._crew = Crew(given.workers, given.folder, env, concurrency=given.concurrency)
        self._feeder = Feeder(
            queue, self._feeds, seed=given.seed, tasks=given.tasks, pace=given.pace,
            most_open=given.workers * given.concurrency * 4,
        )  # fmt: skip
        self._injector = Injector(
            self._crew, queue, self._feeder, self._recorder, lease=given.lease, control=control, server=given.server,
            proxy=self._proxy, database=given.database,
        )  # fmt: skip
        self._tail = Tail(given.folder)
        self._began = time.monotonic()

    def _connect(self) -> tuple[Proxy | None, str]:
        if any(fault.name in _PROXIED for fault in self._given.faults):
            return Proxy.before(self._given.url)
        return None, self._given.url

    def run(self) -> None:
        given = self._given
        write_plan(given.folder / "faults.json", given.faults)
        self._describe()
        try:
            self._crew.keep_running()
            self._feeder.start()
            self._until_all_ended()
            self._injector.end_all()
            left = self._crew.stop(60.0)
            for process in left:
                self._recorder.write("process", pid=process.pid, name=process.command)
            self._collect()
        finally:
            self._feeder.stop()
            self._injector.end_all()
            self._crew.kill()
            if self._proxy is not None:
                self._proxy.close()
            self._recorder.close()
            self._feeds.close()
        if self._feeder.error is not None:
            raise self._feeder.error

    def _describe(self) -> None:
        given = self._given
        facts: dict[str, Any] = {
            "phases": workload.PHASES, "last": ("store", "audit"), "lease": given.lease, "recovery": given.recovery, "tasks": given.tasks,
            "seed": given.seed, "workers": given.workers, "store": urlsplit(given.url).scheme,
            "began": datetime.now(UTC).isoformat(timespec="seconds"),
        }  # fmt: skip
        (given.folder / "settings.json").write_bytes(msgspec.json.encode(facts))
        for name, phase, number in (
            ("phase", "store", workload.PHASE_LIMIT),
            ("key", "encode", workload.KEY_LIMIT),
            ("rate", "fetch", workload.RATE),
        ):
            self._recorder.write("limit", phase=phase, name=name, number=number)

    def _until_all_ended(self) -> None:
        """Inject each fault when its share of the bodies has ended, until every task has ended."""
        pending = list(self._given.faults)
        expected = self._given.tasks * 3
        wait_for_target = 0.0
        shown_at = looked_at = progressed_at = time.monotonic()
        last_done = -1
        open_tasks = 1
        all_ended = False
        while not all_ended:
            time.sleep(0.05)
            now = time.monotonic()
            self._crew.keep_running()
            self._tail.read()
            if self._tail.done != last_done:
                last_done, progressed_at = self._tail.done, now
            if now - progressed_at > self._given.patience or self._feeder.error is not None:
                self._show(f"no progress for {self._given.patience:.0f} s; the run is given up")
                return
            if pending and self._tail.done >= pending[0].at * expected:
                wait_for_target = wait_for_target or now + _TRY_FAULT_FOR
                if self._injector.inject(pending[0]) or now > wait_for_target or pending[0].name in OPERATIONS:
                    del pending[0]
                    wait_for_target = 0.0
            if now - looked_at > 1.0:
                looked_at = now
                fed = self._feeder.done.is_set()  # before the count: the feeder may add tasks after it
                open_tasks = self._open_tasks(open_tasks)
                all_ended = fed and open_tasks == 0
            if now - shown_at > 5.0:
                shown_at = now
                self._show(self._progress())
        self._show(self._progress())

    def _open_tasks(self, before: int) -> int:
        """Return how many tasks have not ended; the last number if the store is unavailable."""
        try:
            counts = [
                each.count
                for name in (soak.name, leaves.name)
                for each in self._queue.store.count(Filter(pipeline=name, statuses=frozenset({WAITING, PROCESSING})))
            ]
        except StoreError:
            return before
        self._feeder.ended = len(self._feeder.kinds) - sum(counts)
        return sum(counts)

    def _progress(self) -> str:
        return (
            f"{time.monotonic() - self._began:5.0f} s  {len(self._feeder.kinds):,} of {self._given.tasks:,} tasks added, "
            f"{self._tail.done:,} bodies done, {sum(self._injector.injected.values()):,} of {len(self._given.faults):,} "
            f"faults injected"
        )

    def _collect(self) -> None:
        """Record the final rows; times of the store become those of the records."""
        offset = time.monotonic() - datetime.now(UTC).timestamp()
        parents: list[str] = []
        for page in pages(self._queue.store, Filter(pipeline=soak.name), "oldest"):
            for task in page:
                self._recorder.write("row", task=task.task_id, row=self._row(task, offset))
                if task.status is COMPLETED and self._feeder.kinds.get(task.task_id) == "parent":
                    parents.append(task.task_id)
        self._collect_children(parents, offset)
        for page in pages(self._queue.store, Filter(pipeline=ticks.name), "oldest"):
            for task in page:
                self._recorder.write("cron", name="each second", key=str(task.scheduled_time or task.run_at))
        self._recorder.write("end of run")

    def _collect_children(self, parents: Sequence[str], offset: float) -> None:
        """Record the children as added if their parent was to have them; one that is missing counts as lost."""
        found: dict[str, int] = {}
        for page in pages(self._queue.store, Filter(pipeline=leaves.name), "oldest"):
            for task in page:
                parent = task.parent_id or ""
                found[parent] = found.get(parent, 0) + 1
                if self._feeder.kinds.get(parent) == "parent" and found[parent] <= CHILDREN:
                    self._recorder.write(
                        "add", task=task.task_id, phase="leaf", parent=parent, hash=digest(task.payload)
                    )
                self._recorder.write("row", task=task.task_id, row=self._row(task, offset))
        for parent in parents:
            for number in range(found.get(parent, 0), CHILDREN):
                self._recorder.write("add", task=f"{parent}, child {number}", parent=parent)

    def _row(self, task: Task, offset: float) -> dict[str, Any]:
        entries = [
            {"what": each.what, "phase": each.phase, "attempt": each.attempt, "by": each.by} for each in task.history
        ]
        row: dict[str, Any] = {
            "status": str(task.status), "phase": task.phase, "history": entries, "error": task.error or "",
            "results": {phase: digest(value) for phase, value in task.results.items()},
        }  # fmt: skip
        if task.parent_id:
            row["child"] = True
        if "children" in (task.results.get("encode") or {}):
            row["children_counted"] = task.results["encode"]["children"]
        by = task.history[-1].by if task.history else ""
        # A worker with a wrong clock wrote a wrong time.
        if task.completed_at is not None and not (by.count("-") >= 2 and _pid(by) in self._injector.stepped):
            row["ended_at"] = task.completed_at.timestamp() + offset
        return row


def _pid(worker: str) -> int:
    try:
        return worker_pid(worker)
    except ValueError:
        return 0  # an operator


def free_folder(parent: Path, seed: int) -> Path:
    """Return a new folder for the records of a run."""
    for number in range(1000):
        folder = parent / f"soak-{seed}{f'-{number}' if number else ''}"
        if not folder.exists():
            return folder
    raise BadInput(f"{parent} has too many folders of soaks", fix="delete old ones", field="dir")
