"""The monitor: onerow's terminal monitor, opened on the jobs, with a log file of its own run."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from onerow import Queue
from onerow.cli.start.log_format import formatter
from onerow.engine.output.masking import Masker
from onerow.tui.app import Monitor
from transcriber.settings import Settings

JOBS = "pipeline:transcribe"
_MODE = 0o640


def run(settings: Settings, queue: Queue, query: str = "", *, read_only: bool = False) -> int:
    """Show the jobs until the user leaves; return the exit code. Workers are other processes and go on."""
    with run_log(settings, queue.masker) as path:
        log = logging.getLogger("transcriber")
        log.info("monitor opened on %s", queue.url)
        if not read_only:
            queue.publish(queue.pipelines["transcribe"])  # the form needs it, also before the first worker
        app = opened(queue, query, read_only=read_only)
        app.run()
        log.info("monitor closed; log %s", path)
    return app.return_code or 0


def opened(queue: Queue, query: str = "", *, read_only: bool = False) -> Monitor:
    """Return the monitor on the list of jobs, or on those that match a query."""
    return Monitor(queue, query=f"{JOBS} {query}".strip(), read_only=read_only)


@contextmanager
def run_log(settings: Settings, masker: Masker) -> Iterator[Path]:
    """Write the log of this run to logs/tui-run-<YYYYMMDD-HHMMSS>.log, masked, and to no screen."""
    path = _new_file(settings.folder("logs"), datetime.now())
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(formatter("text", masker))
    loggers = [logging.getLogger(name) for name in ("transcriber", "onerow")]
    before = [(each, each.level, each.propagate) for each in loggers]
    for each in loggers:
        each.addHandler(handler)
        each.setLevel(logging.INFO)
        each.propagate = False
    try:
        yield path
    finally:
        for each, level, propagate in before:
            each.removeHandler(handler)
            each.setLevel(level)
            each.propagate = propagate
        handler.close()


def _new_file(folder: Path, now: datetime) -> Path:
    folder.mkdir(mode=0o750, parents=True, exist_ok=True)
    stem = f"tui-run-{now:%Y%m%d-%H%M%S}"
    for number in range(1, 1000):
        path = folder / (f"{stem}.log" if number == 1 else f"{stem}-{number}.log")
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _MODE)
        except FileExistsError:
            continue  # another monitor in the same second
        os.fchmod(descriptor, _MODE)
        os.close(descriptor)
        return path
    raise FileExistsError(f"{stem}.log, and a thousand like it")
