"""`onerow demo`: kill a worker during its work and show how another worker resumes the tasks."""

import importlib.util
import io
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from onerow.cli import formatting
from onerow.cli.start.demo_app import FRAMES, videos
from onerow.core.errors import BadInput, StoreError
from onerow.core.status import COMPLETED, PROCESSING
from onerow.core.task import Task
from onerow.engine.queue.queue import Queue
from onerow.engine.views import Views
from onerow.wiring import open_store

TOPICS = ("Tides", "조수와 달", "Why the sky is blue", "月の満ち欠け", "Wolken", "Les marées")
PHASES = [phase.name for phase in videos.plan.phases]

_GIVE_UP_AFTER = 180.0  # seconds without a change of any row
_LOG_LINES = 60


@click.command("demo")
@click.option("--keep", is_flag=True, help="Keep the database.")
@click.option("--fast", is_flag=True, help="Run in a few seconds, for tests.")
@click.option("--monitor", is_flag=True, help="Watch it in onerow monitor; it ends when you quit the monitor.")
@click.option("--web", is_flag=True, help="Show it in the dashboard, until Ctrl-C.")
@click.option("--port", default=8003, show_default=True, type=click.IntRange(0, 65535), help="Port of the dashboard.")
def command(keep: bool, fast: bool, monitor: bool, web: bool, port: int) -> None:
    """Run a five-phase pipeline, kill its worker, and show how another worker resumes the tasks.

    The demo uses an SQLite file in a new folder, an `onerow worker` process and kill -9.
    """
    folder = Path(tempfile.mkdtemp(prefix="onerow-demo-"))
    pace = 0.25 if fast else 1.0
    try:
        if monitor and web:
            raise BadInput("--monitor and --web both show the demo", fix="give one of them", field="web")
        if monitor:
            _run_monitored(folder, pace)
        elif web:
            with running_demo(folder, Console(), pace) as demo:
                show_in_dashboard(demo, port)
        else:
            _run(folder, pace)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    following = f"list --store sqlite:///{folder}/demo.db" if keep else "init my_project"
    click.echo(f"\nNext: {in_this_shell(following)}")


def in_this_shell(words: str) -> str:
    """Return an `onerow` command that works as it is printed, also if this environment is not on PATH."""
    programs = Path(sys.executable).parent
    found = shutil.which("onerow")
    if found is not None and Path(found).parent.resolve() == programs.resolve():
        return f"onerow {words}"
    activate = programs / "activate"
    if not activate.exists():
        return f"{shlex.quote(sys.executable)} -m onerow {words}"
    path = activate.relative_to(Path.cwd()) if activate.is_relative_to(Path.cwd()) else activate
    return f". {shlex.quote(str(path))} && onerow {words}"


def _run(folder: Path, pace: float) -> None:
    with running_demo(folder, Console(), pace) as demo, Live(console=demo.console) as live:
        working = True
        while working:
            time.sleep(0.1)
            working = demo.look()
            if demo.console.is_terminal:
                live.update(demo.table())
    demo.summarize()


def _run_monitored(folder: Path, pace: float) -> None:
    """Run the demo behind `onerow monitor`, which has the terminal; report what happened when the user quits it."""
    if importlib.util.find_spec("textual") is None:
        raise BadInput("--monitor needs Textual", fix="install it with: pip install 'onerow[tui]'", field="monitor")
    console = Console(record=True, file=io.StringIO(), width=120)
    working = True
    with running_demo(folder, console, pace) as demo:
        argv = [sys.executable, "-m", "onerow", "monitor", "--store", demo.queue.url]
        monitor = subprocess.Popen(argv)
        try:
            while monitor.poll() is None:
                time.sleep(0.1)
                working = working and demo.look()
        finally:
            monitor.terminate()
            code = monitor.wait()
    if not working:
        demo.summarize()
    click.echo(console.export_text())
    if code:
        sys.exit(code)


def show_in_dashboard(demo: "Demo", port: int) -> None:
    """Serve the dashboard until Ctrl-C, while a thread runs the demo; tasks that are added later get their signal too."""
    from onerow.cli.start.listening import shown_address
    from onerow.cli.start.web import open_dashboard, serve

    app, listening = open_dashboard(demo.queue, "127.0.0.1", port)
    stop = threading.Event()

    def run() -> None:
        working = True
        while not stop.wait(0.2):
            if working and not (working := demo.look()):
                demo.summarize()
                click.echo("The dashboard stays open; add a task there, or press Ctrl-C.")
            elif not working:
                demo.send_signals(demo.queue.find("status:parked").tasks)

    runner = threading.Thread(target=run, name="onerow-demo")
    runner.start()
    try:
        serve(app, listening, lambda: click.echo(f"dashboard http://{shown_address(listening)}/"))
    finally:
        stop.set()
        runner.join()


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
        yield Demo(queue, console, folder / "worker.log")
    finally:
        worker.terminate()
        worker.wait()
        queue.close()


class Demo:
    """One run of the demo. Every message is read from the rows."""

    def __init__(self, queue: Queue, console: Console, log: Path) -> None:
        self.console = console
        self.queue = queue
        self._log = log
        self._views = Views(queue)
        self._began = time.monotonic()
        self._workers: dict[str, int] = {}  # name → pid
        self._killed = False
        self._retried: set[str] = set()
        self._interrupted: dict[str, Task] = {}  # the tasks of the killed worker, until they run again
        queue.publish(videos)
        self._tasks = [queue.add(videos, {"topic": topic}, priority=n) for n, topic in enumerate(TOPICS)]
        self._versions: list[int] = []
        self._changed_at = time.monotonic()
        self._report(f"{len(TOPICS)} tasks added: {len(TOPICS)} rows in one SQLite file")

    def look(self) -> bool:
        """Read the rows, send the signals, kill the worker once, report what changed; return whether work is left."""
        self._tasks = self._read()
        for worker in self._views.workers(holds=False):
            if worker.name not in self._workers:
                self._workers[worker.name] = worker.pid
                self._report(f"{'new worker' if self._killed else 'worker'} started: process {worker.pid}")
        self.send_signals(self._tasks)
        for task in self._tasks:
            before = self._interrupted.get(task.task_id)
            # By its progress: a worker that starts several such tasks hands some back first.
            if before is not None and (task.phase, task.progress) != (before.phase, before.progress):
                del self._interrupted[task.task_id]
                at = f"{before.phase} at {formatting.progress(before.progress)}"
                self._report(f"“{task.title}” resumes in a new worker: {at}, attempt {before.attempt + 1}")
            if task.retry_count and task.task_id not in self._retried:
                self._retried.add(task.task_id)
                self._report(f"“{task.title}” failed in {task.phase} ({task.error}); it is tried again in a second")
        if not self._killed:
            self._kill_worker()
        self._check_for_changes()
        return not all(task.ended for task in self._tasks)

    def _check_for_changes(self) -> None:
        """Raise StoreError if no row has changed for some minutes; print what the worker does."""
        versions = [task.version for task in self._tasks]
        if versions != self._versions:
            self._versions, self._changed_at = versions, time.monotonic()
        elif time.monotonic() - self._changed_at > _GIVE_UP_AFTER:
            for task in self._tasks:
                self._report(f"“{task.title}”: {task.status} in {task.phase}, attempt {task.attempt}")
            for pid in list(self._workers.values())[-1:]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGUSR1)  # it prints the stacks of its threads
            time.sleep(1)
            last = self._log.read_text("utf-8", "replace").splitlines()[-_LOG_LINES:]
            self.console.print(*last, sep="\n", markup=False, highlight=False, soft_wrap=True)
            raise StoreError(
                f"no task has changed for {_GIVE_UP_AFTER:.0f} s: the demo's worker does not run them",
                fix="please report this with the output above",
            )

    def send_signals(self, tasks: Iterable[Task]) -> None:
        """Send the images to the tasks that wait for them."""
        for task in tasks:
            if task.awaiting == "signal:images.ready":
                self.queue.signal(task.task_id, "images.ready", ["cover.png", "moon.png"], by="demo")

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
        self._report("its supervisor starts a new worker; until then the tasks wait in their rows")
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
