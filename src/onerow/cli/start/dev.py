"""`onerow dev`: a worker that restarts when the code changes, and the dashboard, in one command."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import click

from onerow.cli.app import app_argument, load_app
from onerow.cli.start.listening import shown_address
from onerow.cli.start.web import open_dashboard, serve

_STOPS_WITHIN = 40.0


@click.command("dev")
@app_argument
@click.option("--port", default=8003, show_default=True, type=click.IntRange(0, 65535), help="Port of the dashboard.")
@click.option(
    "--concurrency", "-c", type=click.IntRange(1, 10_000), default=16, show_default=True, help="Tasks at once."
)
def command(app: str, store: str | None, port: int, concurrency: int) -> None:
    """Run the pipelines of APP (module[:queue]) and show them in the dashboard, for development.

    The worker restarts when a Python file of the project changes (needs onerow[reload]). Ctrl-C stops both.
    """
    queue = load_app(app, store)
    page, listening = open_dashboard(queue, "127.0.0.1", port)
    argv = [sys.executable, "-m", "onerow", "worker", app, "--concurrency", str(concurrency)]
    if store is not None:
        argv += ["--store", store]
    if find_spec("watchfiles") is not None:
        argv.append("--reload")
    else:
        click.echo("onerow: the worker does not restart on changes; for that: pip install 'onerow[reload]'", err=True)
    with _worker(argv) as worker:
        serve(page, listening, lambda: click.echo(f"dashboard http://{shown_address(listening)}/", err=True))
    sys.exit(worker.returncode if worker.returncode > 0 else 0)


@contextmanager
def _worker(argv: list[str]) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the worker during the block; its end ends this process too, because the dashboard alone would mislead."""
    # A session of its own: Ctrl-C reaches only this process, which then stops the worker.
    worker = subprocess.Popen(argv, start_new_session=True)
    stopping = threading.Event()

    def watch() -> None:
        worker.wait()
        if not stopping.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    watcher = threading.Thread(target=watch, name="onerow-dev", daemon=True)
    watcher.start()
    try:
        yield worker
    finally:
        stopping.set()
        worker.terminate()
        try:
            worker.wait(_STOPS_WITHIN)
        except subprocess.TimeoutExpired:
            worker.kill()
        watcher.join(5)
