"""The script of the demo: read the rows, send the signals, kill the worker once, report what happens."""

from collections.abc import Callable
from datetime import datetime

from onerow.cli import formatting
from onerow.cli.start.demo.process import DemoProcess
from onerow.core.status import COMPLETED, PROCESSING
from onerow.core.task import Task
from onerow.engine.queue.queue import Queue
from onerow.engine.views import Views, WorkerLine

TOPICS = ("Tides", "조수와 달", "Why the sky is blue", "月の満ち欠け", "Wolken", "Les marées")
_MIDWAY = 0.3


class Story:
    """One run of the demo. Call `look` repeatedly; all messages come from the database."""

    def __init__(self, queue: Queue, process: DemoProcess, report: Callable[[str], None]) -> None:
        self._queue = queue
        self._views = Views(queue)
        self._process = process
        self._report = report
        self._ids: list[str] = []
        self._seen_workers: list[str] = []
        self._victim: WorkerLine | None = None
        self._interrupted: dict[str, Task] = {}  # the tasks that the killed worker held, as of the kill
        self._resumed: set[str] = set()
        self._failed: set[str] = set()
        self.killed_at: datetime | None = None
        self.tasks: list[Task] = []
        self.workers: list[WorkerLine] = []

    def begin(self) -> None:
        """Add the tasks."""
        for number, topic in enumerate(TOPICS):
            payload = {"topic": topic, "unlucky": number == 2}
            self._ids.append(self._queue.add("videos", payload, priority=number).task_id)
        self._report(f"{len(TOPICS)} tasks added: {len(TOPICS)} rows in one SQLite file")

    @property
    def over(self) -> bool:
        return bool(self.tasks) and all(task.ended for task in self.tasks)

    def look(self) -> None:
        """Read the rows, send due signals, and kill the worker at the right moment."""
        found = {task.task_id: task for task in self._queue.store.fetch(self._ids)}
        self.tasks = [found[task_id] for task_id in self._ids]
        self.workers = self._views.workers(holds=False)
        self._report_workers()
        for task in self.tasks:
            if task.awaiting == "signal:images.ready":
                self._queue.signal(task.task_id, "images.ready", ["cover.png", "moon.png"], by="demo")
            if task.phase == "upload" and task.error and task.task_id not in self._failed:
                self._failed.add(task.task_id)
                self._report(f"“{task.title}” failed to upload ({task.error_class}); it waits a second and tries again")
        if self.killed_at is None:
            self._kill_worker()
        else:
            self._report_resumed()

    def _report_workers(self) -> None:
        for worker in self.workers:
            if worker.name not in self._seen_workers:
                self._seen_workers.append(worker.name)
                again = "a new worker" if self.killed_at is not None else "worker"
                self._report(f"{again} started: process {worker.pid}")

    def _kill_worker(self) -> None:
        rendering = [t for t in self.tasks if t.status is PROCESSING and t.phase == "video" and _share(t) >= _MIDWAY]
        victim = next((w for w in self.workers if rendering and w.name == rendering[0].leased_by), None)
        if victim is None:
            return
        self._process.kill(victim.pid)
        self._victim, self.killed_at = victim, self._queue.store.now()
        held = [task for task in self._queue.store.fetch(self._ids) if task.leased_by == victim.name]
        self._interrupted = {task.task_id: task for task in held}
        self._report(f"kill -9 {victim.pid}: the worker is dead, in the middle of {len(held)} tasks")
        for task in held:
            done = ", ".join(task.results) or "nothing"
            at = formatting.progress(task.progress)
            self._report(
                f"  the row of “{task.title}” still says: {task.phase}{f' at {at}' if at else ''}; done: {done}"
            )

    def _report_resumed(self) -> None:
        for task in self.tasks:
            before = self._interrupted.get(task.task_id)
            if before is None or task.task_id in self._resumed or task.token <= before.token + 1:
                continue
            self._resumed.add(task.task_id)
            after = formatting.ago(self.killed_at, task.started_at or self._queue.store.now())
            at = formatting.progress(before.progress)
            where = f"{before.phase}{f', from {at}' if at else ''}"
            self._report(f"“{task.title}” goes on {after} after the kill: {where}, attempt {before.attempt + 1}")

    def cast(self) -> list[tuple[int, bool]]:
        """Return the pid of each worker and whether it is alive."""
        victim = "" if self._victim is None else self._victim.name
        return [(worker.pid, worker.name != victim) for worker in self.workers if worker.alive]

    def summary(self) -> list[str]:
        """Return the result of the demo, counted from the histories of the rows."""
        done = [t for t in self.tasks if t.status is COMPLETED]
        phases = [(t.task_id, e.phase) for t in self.tasks for e in t.history if e.what in ("advanced", "completed", "passed")]  # fmt: skip
        rescued = sum(e.what == "rescued" for t in self.tasks for e in t.history)
        retries = sum(e.what == "failed" for t in self.tasks for e in t.history)
        twice = len(phases) - len(set(phases))
        return [
            f"{len(done)} of {len(self.tasks)} tasks completed: {len(phases)} phases, each recorded once"
            + ("" if not twice else f" (but {twice} twice)"),
            f"1 worker killed with kill -9; {rescued} running tasks rescued, none lost, no finished phase run again",
            f"{retries} failed attempt{'' if retries == 1 else 's'} tried again",
        ]

    @property
    def went_well(self) -> bool:
        return (
            all(task.status is COMPLETED for task in self.tasks)
            and self.killed_at is not None
            and set(self._resumed) == set(self._interrupted)
        )


def _share(task: Task) -> float:
    progress = task.progress
    return progress["done"] / progress["total"] if progress and progress["total"] else 0.0
