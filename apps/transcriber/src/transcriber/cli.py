"""The command `transcriber`: add jobs, run the worker daemon, open the monitor."""

import functools
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from onerow import BadInput, Filter, OnerowError, Status, Task, UnknownName
from onerow.cli.exit_codes import exit_code
from onerow.core.times import parse_moment
from transcriber.jobs import FLAGS
from transcriber.opening import LABELS, add_job, open_queue, remove_left_work
from transcriber.settings import Settings
from transcriber.view import make_view

WORDS = {LABELS.statuses.get(status, str(status)): status for status in Status}
"""The transcriber's words → statuses of tasks."""
_LONGEST_TITLE = 80


def _plainly(function: Callable[..., Any]) -> Callable[..., Any]:
    """Print errors that the user can fix as one line on stderr, without a traceback."""

    @functools.wraps(function)
    def run(*args: Any, **named: Any) -> Any:
        try:
            return function(*args, **named)
        except OnerowError as error:
            click.echo(f"Error: {error}" + (f": {error.fix}" if error.fix else ""), err=True)
            sys.exit(exit_code(error))
        except BrokenPipeError:
            raise  # of `transcriber list | head`: click ends quietly
        except OSError as error:
            raise click.ClickException(f"{error.filename or 'system'}: {error.strerror or error}") from None

    return run


def _flags(function: Callable[..., Any]) -> Callable[..., Any]:
    for flag, text in reversed(FLAGS.items()):
        function = click.option(f"--{flag}", is_flag=True, help=text)(function)
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
    """From a recording to its transcript, subtitles, summary and translation.

    \b
    transcriber worker &                    the daemon, which does the jobs
    transcriber add talk.mp4 --srt          a job; or a URL, or a playlist
    transcriber monitor                     all jobs, in the terminal
    """
    os.environ["TRANSCRIBER_HOME"] = str(home.expanduser().absolute())
    os.umask(0o027)  # files 0640, the database too


@main.command()
@click.argument("url")
@click.option(
    "--engine",
    help="pocketsphinx, whisper-cpp, faster-whisper, youtube, subtitles, or a model of the endpoint such as "
    "gpt-4o-mini-transcribe.  [default: TRANSCRIBER_ENGINE, else pocketsphinx]",
)
@click.option("--title", default="", help="A title for lists.")
@click.option("--id", "task_id", help="The job's id.")
@click.option("--at", default="now", help="Earliest start: now, +10m, or 2026-11-15T09:00:00+09:00.  [default: now]")
@click.option("--priority", type=click.IntRange(-100, 100), default=0, show_default=True, help="Lower runs first.")
@_flags
@_plainly
def add(url: str, engine: str | None, title: str, task_id: str | None, at: str, priority: int, **flags: bool) -> None:
    """Add a job and print its id.

    URL is http, https or the path of a file; a list (.m3u, .txt, or a URL with list=) becomes one job for each entry.
    """
    when = None if at == "now" else parse_moment(at, open_queue().store.now(), "--at")
    if url and "://" not in url:
        url = str(Path(url).absolute())
        if when is None and not Path(url).is_file():  # a later job may be for a file that will be there
            raise BadInput(f"{url} is a folder, not a file" if Path(url).is_dir() else f"there is no file {url}")
    if task_id is not None and (found := _existing(task_id)) is not None:
        raise BadInput(
            f"job {task_id} exists already and is {LABELS.statuses.get(found.status, str(found.status))}",
            fix=f"choose another --id, or look at it with: transcriber queue show {task_id}",
        )
    task = add_job(url, task_id=task_id, priority=priority, run_at=when, engine=engine, title=title, **flags)
    click.echo(task.task_id)


def _existing(task_id: str) -> Task | None:
    try:
        return open_queue().get(task_id)
    except UnknownName:
        return None


@main.command("list")
@click.argument("status", type=click.Choice(list(WORDS)), required=False)
@_plainly
def list_(status: str | None) -> None:
    """Print the jobs, the newest first."""
    wanted = list(WORDS) if status is None else [status]
    where = Filter(pipeline="transcribe", statuses=frozenset(WORDS[word] for word in wanted))
    words = {value: word for word, value in WORDS.items()}
    tasks = sorted(open_queue().select(where), key=lambda each: each.created_at, reverse=True)
    for task in tasks:
        title = task.title if len(task.title) <= _LONGEST_TITLE else f"{task.title[: _LONGEST_TITLE - 1]}…"
        detail = task.error if task.status is Status.FAILED else task.payload.get("engine", "")
        click.echo(f"{words[task.status]:9}  {task.task_id}  {title}  ({detail})")
    if not tasks:
        click.echo(f"no {f'{status} ' if status else ''}jobs; add one with: transcriber add FILE", err=True)


@main.command(context_settings={"ignore_unknown_options": True})
@click.option("--concurrency", type=click.IntRange(1, 1000), default=2, show_default=True, help="Jobs at once.")
@click.option(
    "--interval",
    envvar="TRANSCRIBER_INTERVAL",
    default="2s",
    show_default=True,
    help="How often to look for files and jobs: 2, 2s, 500ms.",
)
@click.argument("more", nargs=-1, type=click.UNPROCESSED)
@_plainly
def worker(concurrency: int, interval: str, more: Sequence[str]) -> None:
    """Run the daemon, which does the jobs.

    It takes files from queue/ and runs jobs until it is stopped. It takes the options of `onerow worker` too, such as --until-idle; `transcriber queue worker --help` lists them.
    """
    interval = f"{interval}s" if re.fullmatch(r"[\d.]+", interval) else interval
    os.environ["TRANSCRIBER_INTERVAL"] = interval
    Settings.of_environment().check_programs()
    make_view(open_queue())
    remove_left_work()
    argv = [sys.executable, "-m", "onerow", "worker", "transcriber.app", "--concurrency", str(concurrency)]
    os.execv(sys.executable, [*argv, "--interval", interval, *more])


@main.command()
@click.argument("query", nargs=-1)
@click.option("--read-only", is_flag=True, help="Offer no operation that changes anything.")
@_plainly
def monitor(query: Sequence[str], read_only: bool) -> None:
    """Show the jobs in the terminal. Jobs go on when it ends.

    Filter by status, search titles and URLs, see progress and logs, cancel, requeue, mark, add. With QUERY it opens the
    jobs that match: status:failed, or words of a title.
    """
    from transcriber import monitor as monitoring  # with Textual, which other commands need not wait for

    sys.exit(monitoring.run(Settings.of_environment(), open_queue(), " ".join(query), read_only=read_only))


@main.command()
@_plainly
def view() -> None:
    """Make the view transcription_jobs in the database.

    The worker does it too.
    """
    make_view(open_queue())
    click.echo("view transcription_jobs: ready")


@main.command()
@click.option("--engine", default="pocketsphinx", show_default=True, help="Any engine that hears audio.")
@_plainly
def measure(engine: str) -> None:
    """Print the word error rate of an engine on the shipped samples."""
    from transcriber.measure import measure as measure_engine

    measure_engine(engine, Settings.of_environment(), click.echo)


@main.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@_plainly
def queue(words: Sequence[str]) -> None:
    """Run any command of onerow on these jobs.

    transcriber queue logs ID, transcriber queue why ID; `transcriber queue` alone lists the commands.
    """
    os.environ["ONEROW_STORE"] = Settings.of_environment().store
    os.execv(sys.executable, [sys.executable, "-m", "onerow", *words])
