"""Runs `onerow worker` as a child process, and watches the upload folder."""

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

import click

from onerow import StoreError, Task
from video_studio.library import add_video
from video_studio.opening import open_queue
from video_studio.settings import Settings
from video_studio.uploads import collect_drops

_LOOK_EVERY = 0.5
_PATIENCE = 60
_APP = "video_studio.app"


def serve(options: Sequence[str] = ()) -> int:
    """Run until a signal or until the worker ends; return the worker's exit code."""
    with _worker(options) as worker:
        while worker.poll() is None:
            _collect()
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(_LOOK_EVERY)
        return worker.returncode


def make(topic: str) -> int:
    """Make one film and print its progress; return 0 if it was published."""
    settings = Settings.of_environment()
    began = time.monotonic()
    task = add_video(topic, draw=True, priority=-10)
    click.echo(f"task {task.task_id}: {topic!r}, in {settings.database}")
    tell = _Teller(began)
    with _worker(["--interval", "200ms"], quiet=True) as worker:
        while not (task := open_queue().get(task.task_id)).ended and worker.poll() is None:
            tell(task)
            time.sleep(_LOOK_EVERY / 5)
        tell(task)
    if task.status != "completed":
        click.secho(f"{task.status} at {task.type}: {task.error or 'the worker ended'}", fg="red", err=True)
        return 1
    for line in open_queue().logs(task.task_id).lines:
        if line.level == "warning":
            click.secho(f"        {line.text}", fg="yellow")
    click.secho(f"{time.monotonic() - began:5.1f}s  {task.result['where']}", bold=True)
    return 0


class _Teller:
    """Prints changes since the last call, one line per phase."""

    def __init__(self, began: float) -> None:
        self._began = began
        self._told = 0
        self._shown = ""
        self._live = sys.stdout.isatty()

    def __call__(self, task: Task) -> None:
        done = [
            entry for entry in task.history if entry.what in ("passed", "advanced", "completed", "failed", "rescued")
        ]
        for entry in done[self._told :]:
            took = "" if entry.ms is None else f" in {entry.ms / 1000:.1f} s"
            self._line(f"{entry.phase:9} {entry.error or (entry.note if entry.what == 'rescued' else 'done')}{took}")
        self._told = len(done)
        progress = task.progress
        if task.status == "processing" and progress and progress["total"]:
            share = progress["done"] / progress["total"]
            steps = share if self._live else int(share * 4) / 4
            self._line(f"{task.type:9} {steps:.0%} of {progress['total']} {progress['note']}", passing=True)

    def _line(self, text: str, *, passing: bool = False) -> None:
        if passing and text == self._shown:
            return
        self._shown = text
        start, end = ("\r\x1b[K", "" if passing else "\n") if self._live else ("", "\n")
        click.echo(f"{start}{time.monotonic() - self._began:5.1f}s  {text}{end}", nl=False)


def _collect() -> None:
    """Collect complete drops; ignore an unavailable store."""
    with contextlib.suppress(StoreError, OSError):
        for task_id in collect_drops():
            click.echo(f"pictures for {task_id}", err=True)


@contextlib.contextmanager
def _worker(options: Sequence[str], *, quiet: bool = False) -> Iterator[subprocess.Popen[bytes]]:
    """Start `onerow worker`; stop it at the end, on SIGTERM and on Ctrl-C."""
    argv = [sys.executable, "-m", "onerow", "worker", _APP, *options]
    settings = Settings.of_environment()
    settings.home.mkdir(parents=True, exist_ok=True)
    output = (settings.home / "worker.log").open("ab") if quiet else None
    # In its own process group, so that Ctrl-C reaches it only once, through this process.
    worker = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
    try:
        with _signals(lambda: worker.send_signal(signal.SIGTERM)):
            yield worker
    finally:
        if output is not None:
            output.close()
        if worker.poll() is None:
            worker.send_signal(signal.SIGTERM)
            try:
                worker.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                worker.kill()


@contextlib.contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    def heard(number: int, frame: FrameType | None) -> None:
        stop()

    before = {number: signal.signal(number, heard) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
