"""The monitor: onerow's terminal monitor, opened on the jobs, with a log file of its own run."""

import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from onerow import BadInput, Queue
from onerow.cli.start.log_format import formatter
from onerow.engine.output.masking import Masker
from onerow.tui.acts import Act
from onerow.tui.app import Monitor
from onerow.tui.places import Place
from transcriber.settings import Settings

JOBS = "pipeline:transcribe"
_MODE = 0o640
_STATUSES = {"queued": "waiting", "running": "processing"}
_log = logging.getLogger("transcriber")


class JobMonitor(Monitor):
    """onerow's monitor; queries may use the transcriber's words, and operations and messages are logged."""

    async def go(self, place: Place, *, replace: bool = False) -> None:
        if place.page != "task":  # that page takes an id, the others a query
            place = place._replace(argument=in_statuses(place.argument))
        await super().go(place, replace=replace)

    def _agreed(self, act: Act | None) -> None:
        if act is not None:
            _log.info("%s", act.command())
        super()._agreed(act)

    def say(self, text: str, *, bad: bool = False) -> None:
        _log.log(logging.WARNING if bad else logging.INFO, "%s", text)
        super().say(text, bad=bad)


def run(settings: Settings, queue: Queue, query: str = "", *, read_only: bool = False) -> int:
    """Show the jobs until the user leaves; return the exit code. Workers are other processes and go on."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM", "") in ("", "dumb", "unknown"):
        raise BadInput(
            "the monitor needs a terminal that moves its cursor", fix="use: transcriber list", field="monitor"
        )
    app = opened(queue, query, read_only=read_only)
    with run_log(settings, queue.masker):
        _log.info("monitor opened on %s", queue.url)
        if not read_only:
            queue.publish(queue.pipelines["transcribe"])  # the form needs it, also before the first worker
        app.run()
        _log.info("monitor closed with code %d", app.return_code or 0)
    return app.return_code or 0


def opened(queue: Queue, query: str = "", *, read_only: bool = False) -> JobMonitor:
    """Return the monitor on the list of jobs, or on those that match a query; raise BadQuery for one that is wrong."""
    asked = in_statuses(f"{JOBS} {query}".strip())
    queue.find(asked, limit=1)  # before the screen is taken
    return JobMonitor(queue, query=asked, read_only=read_only)


def in_statuses(query: str) -> str:
    """Return a query with statuses in place of the transcriber's words: status:queued → status:waiting."""

    def translated(found: re.Match[str]) -> str:
        return re.sub(r"\w+", lambda word: _STATUSES.get(word[0], word[0]), found[0])

    return re.sub(r'(?<![\w"])status:[\w,|]+', translated, query)


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
