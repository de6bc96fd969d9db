"""The command `transcriber`: add jobs, run the worker daemon, open the monitor."""

import functools
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from onerow import Filter, OnerowError, Status
from onerow.core.times import parse_moment
from transcriber import monitor as monitoring
from transcriber.measure import measure as measure_engine
from transcriber.opening import FLAGS, add_job, open_queue
from transcriber.settings import Settings
from transcriber.view import make_view

WORDS = {"queued": Status.WAITING, "running": Status.PROCESSING} | {
    str(status): status for status in (Status.COMPLETED, Status.FAILED, Status.CANCELLED)
}
"""The transcriber's words → statuses of tasks."""


def _plainly(function: Callable[..., Any]) -> Callable[..., Any]:
    """Print errors that the user can fix as one line on stderr, without a traceback."""

    @functools.wraps(function)
    def run(*args: Any, **named: Any) -> Any:
        try:
            return function(*args, **named)
        except OnerowError as error:
            raise click.ClickException(f"{error}" + (f": {error.fix}" if error.fix else "")) from None

    return run


def _flags(function: Callable[..., Any]) -> Callable[..., Any]:
    for flag in reversed(FLAGS):
        function = click.option(f"--{flag}", is_flag=True, help=f"As {flag} of a queue file.")(function)
    return function


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--home",
    envvar="TRANSCRIBER_HOME",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("transcriber"),
    show_default=True,
    help="The project's folder: database, queue/, logs/, transcript/, audio/, video/, archive/.",
)
def main(home: Path) -> None:
    """From a recording to its transcript, subtitles, summary and translation."""
    os.environ["TRANSCRIBER_HOME"] = str(home.expanduser().absolute())
    os.umask(0o027)  # files 0640, the database too


@main.command()
@click.argument("url")
@click.option("--engine", help="pocketsphinx, gpt-4o-mini-transcribe, whisper-cpp, faster-whisper, subtitles, youtube.")
@click.option("--title", default="", help="A title for lists.")
@click.option("--id", "task_id", help="The job's id.")
@click.option("--at", default="now", help="Earliest start: now, +10m, or 2026-11-15T09:00:00+09:00.  [default: now]")
@click.option("--priority", type=click.IntRange(-100, 100), default=0, show_default=True, help="Lower runs first.")
@_flags
@_plainly
def add(url: str, engine: str | None, title: str, task_id: str | None, at: str, priority: int, **flags: bool) -> None:
    """Add a job for URL (http, https, or a path) and print its id."""
    if "://" not in url and not url.startswith("-"):
        url = str(Path(url).absolute())
    when = None if at == "now" else parse_moment(at, open_queue().store.now())
    task = add_job(url, task_id=task_id, priority=priority, run_at=when, engine=engine, title=title, **flags)
    click.echo(task.task_id)


@main.command("list")
@click.argument("status", type=click.Choice(list(WORDS)), required=False)
@_plainly
def list_(status: str | None) -> None:
    """The jobs, the newest first; of one STATUS or of all."""
    wanted = list(WORDS) if status is None else [status]
    where = Filter(pipeline="transcribe", statuses=frozenset(WORDS[word] for word in wanted))
    words = {value: word for word, value in WORDS.items()}
    for task in sorted(open_queue().select(where), key=lambda each: each.created_at, reverse=True):
        detail = task.error if task.status is Status.FAILED else task.payload.get("engine", "")
        click.echo(f"{words[task.status]:9}  {task.task_id}  {task.title}  ({detail})")


@main.command(context_settings={"ignore_unknown_options": True})
@click.option("--concurrency", type=click.IntRange(1, 1000), default=2, show_default=True, help="Jobs at once.")
@click.option("--interval", default="2s", show_default=True, help="How often to look for files and jobs: 2, 2s, 500ms.")
@click.argument("more", nargs=-1, type=click.UNPROCESSED)
@_plainly
def worker(concurrency: int, interval: str, more: Sequence[str]) -> None:
    """The daemon: take files from queue/ and run jobs until stopped. Takes the options of `onerow worker` too."""
    interval = f"{interval}s" if re.fullmatch(r"[\d.]+", interval) else interval
    os.environ["TRANSCRIBER_INTERVAL"] = interval
    make_view(open_queue())
    argv = [sys.executable, "-m", "onerow", "worker", "transcriber.app", "--concurrency", str(concurrency)]
    os.execv(sys.executable, [*argv, "--interval", interval, *more])


@main.command()
@click.argument("query", nargs=-1)
@click.option("--read-only", is_flag=True, help="Offer no operation that changes anything.")
@_plainly
def monitor(query: Sequence[str], read_only: bool) -> None:
    """The jobs in the terminal: filter, search, progress, log, cancel, requeue, mark, add. Jobs go on when it ends."""
    sys.exit(monitoring.run(Settings.of_environment(), open_queue(), " ".join(query), read_only=read_only))


@main.command()
@_plainly
def view() -> None:
    """Make the view transcription_jobs in the database; the worker does it too."""
    make_view(open_queue())
    click.echo("view transcription_jobs: ready")


@main.command()
@click.option("--engine", default="pocketsphinx", show_default=True, help="Any engine that hears audio.")
@_plainly
def measure(engine: str) -> None:
    """Transcribe the shipped samples and print the word error rate of an engine."""
    measure_engine(engine, Settings.of_environment(), click.echo)


@main.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@_plainly
def queue(words: Sequence[str]) -> None:
    """Any command of onerow on these jobs: transcriber queue logs ID, transcriber queue why ID."""
    os.environ["ONEROW_STORE"] = open_queue().url
    os.execv(sys.executable, [sys.executable, "-m", "onerow", *words])
