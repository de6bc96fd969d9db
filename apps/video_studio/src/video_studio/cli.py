"""The command `studio`: add videos, upload pictures, list tabs, run a worker."""

import functools
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from onerow import OnerowError
from onerow.core.times import parse_moment
from video_studio import running
from video_studio.library import add_video
from video_studio.opening import open_queue
from video_studio.status import update_queue_status
from video_studio.tabs import TABS, Schedule, queue_counts, schedules_by_tab
from video_studio.uploads import upload as upload_pictures


def _plainly(function: Callable[..., Any]) -> Callable[..., Any]:
    """Print errors that the user can fix as one line on stderr, without a traceback."""

    @functools.wraps(function)
    def run(*args: Any, **named: Any) -> Any:
        try:
            return function(*args, **named)
        except OnerowError as error:
            raise click.ClickException(str(error)) from None

    return run


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--home",
    envvar="STUDIO_HOME",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("studio"),
    show_default=True,
    help="The studio's folder: its database, uploads, videos, and what it published.",
)
def main(home: Path) -> None:
    """From a topic to a published video: schedule → script → image → video → youtube."""
    os.environ["STUDIO_HOME"] = str(home)


@main.command()
@click.argument("topic")
@click.option("--at", "at", default="now", help="When: now, +10m, or 2026-11-15T09:00:00+09:00.  [default: now]")
@click.option("--draw", is_flag=True, help="Let the studio draw the pictures; else it waits for an upload.")
@click.option("--id", "task_id", help="An id of your own.")
@click.option("--user", "user_id", default="studio", show_default=True, help="Whose video it is.")
@click.option("--priority", type=click.IntRange(-100, 100), default=0, show_default=True, help="Lower runs first.")
@_plainly
def add(topic: str, at: str, draw: bool, task_id: str | None, user_id: str, priority: int) -> None:
    """Put a video about TOPIC in, and print its id."""
    when = parse_moment(at, open_queue().store.now())
    task = add_video(topic, scheduled_time=when, draw=draw, task_id=task_id, user_id=user_id, priority=priority)
    click.echo(task.task_id)


@main.command()
@click.argument("task_id")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@_plainly
def upload(task_id: str, files: Sequence[Path]) -> None:
    """Give a task its pictures: FILES in the order of its scenes."""
    upload_pictures(task_id, files)
    click.echo(f"{len(files)} picture{'' if len(files) == 1 else 's'} for {task_id}")


@main.command("list")
@click.argument("tab", type=click.Choice(list(TABS)), required=False)
@_plainly
def list_(tab: str | None) -> None:
    """The videos of a TAB (or of all), the newest scheduled time first."""
    for name in [tab] if tab else TABS:
        lines = schedules_by_tab(name)
        if lines or tab:
            click.secho(f"{name} ({len(lines)})", bold=True)
        for line in lines:
            click.echo(f"  {line.scheduled_time:%Y-%m-%d %H:%M:%SZ}  {line.task_id}  {_words(line)}")


@main.command()
@_plainly
def counts() -> None:
    """How many videos each tab has."""
    for tab, count in queue_counts().items():
        click.echo(f"{tab:10} {count:6}")


@main.command("set")
@click.argument("task_id")
@click.argument("status", type=click.Choice(["waiting", "completed", "failed", "cancelled"]))
@click.option("--error", "error_message", help="Why; needed for failed.")
@_plainly
def set_(task_id: str, status: str, error_message: str | None) -> None:
    """Set a task's STATUS by hand, where its own allows it."""
    task = update_queue_status(task_id, status, error_message=error_message)
    asked = " (asked to stop)" if task.cancel_requested and not task.ended else ""
    click.echo(f"{task.task_id}: {task.status} at {task.type}{asked}")


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("worker_options", nargs=-1, type=click.UNPROCESSED)
@_plainly
def run(worker_options: Sequence[str]) -> None:
    """Serve until stopped: a worker, and an eye on the upload folder. Takes the options of `onerow worker`."""
    sys.exit(running.serve(worker_options))


@main.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@_plainly
def queue(words: Sequence[str]) -> None:
    """Any command of onerow on this studio's queue: studio queue list, studio queue why ID."""
    os.environ["ONEROW_STORE"] = open_queue().url
    os.execv(sys.executable, [sys.executable, "-m", "onerow", *words])


@main.command()
@click.option("--topic", default="tides", show_default=True, help="What the film is about.")
@_plainly
def make(topic: str) -> None:
    """Make one film about a topic, with drawn pictures, and publish it: the whole way in one command."""
    sys.exit(running.make(topic))


def _words(line: Schedule) -> str:
    parts = [line.topic or "(no row in `task`)"]
    if line.type not in ("schedule",):
        parts.append(f"{line.status} at {line.type}")
    if line.error:
        parts.append(line.error)
    return " · ".join(parts)
