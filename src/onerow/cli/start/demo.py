"""`onerow demo`: kill a worker during its work and show how another worker resumes the tasks."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from onerow.cli import formatting
from onerow.cli.start.demo_app import FRAMES, videos
from onerow.core.errors import StoreError
from onerow.core.status import COMPLETED, PROCESSING
from onerow.core.task import Task
from onerow.engine.queue.queue import Queue
from onerow.engine.views import Views
from onerow.wiring import open_store

TOPICS = ("Tides", "조수와 달", "Why the sky is blue", "月の満ち欠け", "Wolken", "Les marées")
PHASES = [phase.name for phase in videos.plan.phases]


@click.command("demo")
@click.option("--keep", is_flag=True, help="Keep the database.")
@click.option("--fast", is_flag=True, help="Run in a few seconds, for tests.")
def command(keep: bool, fast: bool) -> None:
    """Run a five-phase pipeline, kill its worker, and show how another worker resumes the tasks.

    The demo uses an SQLite file in a new folder, an `onerow worker` process and kill -9.
    """
    folder = Path(tempfile.mkdtemp(prefix="onerow-demo-"))
    try:
        with running_demo(folder, Console(), 0.25 if fast else 1.0) as demo, Live(console=demo.console) as live:
            working = True
            while working:
                time.sleep(0.1)
                working = demo.look()
                if demo.console.is_terminal:
                    live.update(demo.table())
        demo.summarize()
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    click.echo(f"\nNext: onerow list --store sqlite:///{folder}/demo.db" if keep else "\nNext: onerow init my_project")


@contextmanager
def running_demo(folder: Path, console: Console, pace: float) -> Iterator["Demo"]:
    """Add the tasks, and run `onerow worker` during the block, as a user would; its log is a file in the folder."""
    queue = Queue(open_store(f"sqlite:///{folder / 'demo.db'}"))
    argv = [sys.executable, "-m", "onerow", "worker", "onerow.cli.start.demo_app", "--store", queue.url]
    with open(folder / "worker.log", "wb") as log:
        # A new session, so that Ctrl-C reaches only the demo, which then stops the worker.
        worker = subprocess.Popen(
            [*argv, "--interval", "0.2s"], env=os.environ | {"ONEROW_DEMO_PACE": str(pace)}, cwd=folder,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        yield Demo(queue, console)
    finally:
        worker.terminate()
        worker.wait()
        queue.close()


class Demo:
    """One run of the demo. Every message is read from the rows."""

    def __init__(self, queue: Queue, console: Console) -> None:
        self.console = console
        self.queue = queue
        self._views = Views(queue)
        self._began = time.monotonic()
        self._workers: dict[str, int] = {}  # name → pid
        self._killed = False
        self._interrupted: dict[str, Task] = {}  # the tasks of the killed worker, until they run again
        queue.publish(videos)
        self._tasks = [queue.add(videos, {"topic": topic}, priority=n) for n, topic in enumerate(TOPICS)]
        self._report(f"{len(TOPICS)} tasks added: {len(TOPICS)} rows in one SQLite file")

    def look(self) -> bool:
        """Read the rows, send the signals, kill the worker once, report what changed; return whether work is left."""
        self._tasks = self._read()
        for worker in self._views.workers(holds=False):
            if worker.name not in self._workers:
                self._workers[worker.name] = worker.pid
                self._report(f"{'new worker' if self._killed else 'worker'} started: process {worker.pid}")
        for task in self._tasks:
            if task.awaiting == "signal:images.ready":
                self.queue.signal(task.task_id, "images.ready", ["cover.png", "moon.png"], by="demo")
            before = self._interrupted.get(task.task_id)
            if before is not None and task.token > before.token + 1:
                del self._interrupted[task.task_id]
                at = f"{before.phase} at {formatting.progress(before.progress)}"
                self._report(f"“{task.title}” resumes in a new worker: {at}, attempt {before.attempt + 1}")
        if not self._killed:
            self._kill_worker()
        if time.monotonic() - self._began > 180:
            raise StoreError("the demo did not finish in 180 s: its worker does not run the tasks")
        return not all(task.ended for task in self._tasks)

    def _read(self) -> list[Task]:
        return sorted(self.queue.store.fetch([task.task_id for task in self._tasks]), key=lambda task: task.priority)

    def _kill_worker(self) -> None:
        rendering = [task for task in self._tasks if task.phase == "video" and task.status is PROCESSING]
        pid = self._workers.get(rendering[0].leased_by or "") if rendering else None
        if pid is None or not any((task.progress or {"done": 0})["done"] >= FRAMES * 0.3 for task in rendering):
            return
        os.kill(pid, signal.SIGKILL)
        self._killed = True
        self._interrupted = {task.task_id: task for task in self._read() if task.status is PROCESSING}
        self._report(f"kill -9 {pid}: the worker is dead; it had {len(self._interrupted)} running tasks")
        for task in self._interrupted.values():
            at = f"{task.phase} at {formatting.progress(task.progress)}"
            self._report(f"the row of “{task.title}” still says: {at}; done: {', '.join(task.results)}")

    def _report(self, line: str) -> None:
        seconds = time.monotonic() - self._began
        self.console.print(f"{seconds:5.1f}s  {line}", markup=False, highlight=False, soft_wrap=True)

    def table(self) -> Table:
        """Return a table with a row per task and a column per phase."""
        table = Table("one task, one row", *PHASES)
        for task in self._tasks:
            table.add_row(task.title, *(_cell(task, PHASES.index(task.phase) - n) for n in range(len(PHASES))))
        return table

    def summarize(self) -> None:
        """Print the result, counted from the histories of the rows."""
        entries = [(task.task_id, entry.phase, entry.what) for task in self._tasks for entry in task.history]
        ended = [entry[:2] for entry in entries if entry[2] in ("advanced", "completed", "passed")]
        completed = sum(task.status is COMPLETED for task in self._tasks)
        if not self._killed or self._interrupted or len(set(ended)) != len(ended) or completed != len(TOPICS):
            raise StoreError("the demo did not end as expected", fix="please report this with the output above")
        rescued, failed = (sum(what == wanted for *_, what in entries) for wanted in ("rescued", "failed"))
        self._report(f"{completed} of {len(TOPICS)} tasks completed: {len(ended)} phases, each recorded once")
        self._report(
            f"{rescued} running tasks rescued, none lost, no completed phase run again; {failed} attempt retried"
        )


def _cell(task: Task, phases_ahead: int) -> str:
    if phases_ahead or task.ended:
        return "[green]done" if phases_ahead > 0 or task.ended else ""
    return (
        f"[cyan]{formatting.progress(task.progress) or 'running'}" if task.status is PROCESSING else "[yellow]waiting"
    )
