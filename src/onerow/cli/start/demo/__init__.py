"""`onerow demo`: show on a live board how tasks resume after their worker was killed."""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from onerow.cli.start.demo.process import DemoProcess
from onerow.cli.start.demo.script import Story
from onerow.core.errors import StoreError
from onerow.engine.queue.queue import Queue
from onerow.wiring import open_store

_FRAME = 0.1
_LONGEST = 180.0

_Show = Callable[[Story, list[str], list[str], Queue], None]


@click.command("demo")
@click.option("--keep", is_flag=True, help="Keep the database.")
@click.option("--fast", is_flag=True, help="Run in a few seconds, for tests.")
def command(keep: bool, fast: bool) -> None:
    """Run a five-phase pipeline, kill its worker, and show how another worker resumes the tasks.

    The demo uses an SQLite file in a new folder, an `onerow worker` process and kill -9.
    """
    folder = Path(tempfile.mkdtemp(prefix="onerow-demo-"))
    url = f"sqlite:///{folder / 'demo.db'}"
    process = DemoProcess(folder, url, 0.25 if fast else 1.0)
    try:
        code = _run(url, process)
    finally:
        process.close()
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    if keep:
        click.echo(f"\nThe database is kept. Look around:\n  export ONEROW_STORE={url}\n  onerow list\n  onerow stats")
    else:
        click.echo("\nYour turn:\n  onerow init my_project")
    sys.exit(code)


def _run(url: str, process: DemoProcess) -> int:
    from onerow.cli.start.demo.studio import videos

    queue = Queue(open_store(url))
    queue.publish(videos)
    phases = [phase.name for phase in videos.plan.phases]
    lines: list[str] = []
    began = time.monotonic()
    live = sys.stdout.isatty()

    def report(line: str) -> None:
        lines.append(f"{'':8}{line}" if line.startswith(" ") else f"{time.monotonic() - began:5.1f}s  {line}")
        if not live:
            click.echo(lines[-1])

    story = Story(queue, process, report)
    try:
        story.begin()
        process.open()
        with _screen(live) as show:
            while not story.over:
                story.look()
                show(story, phases, lines, queue)
                if not process.running or time.monotonic() - began > _LONGEST:
                    break
                time.sleep(_FRAME)
    finally:
        queue.close()
    for line in story.summary():
        click.echo(line)
    if not story.went_well:
        raise StoreError(f"the demo did not end as it should; the worker said:\n{process.log_tail()}")
    return 0


@contextmanager
def _screen(live: bool) -> Iterator[_Show]:
    if not live:
        yield lambda story, phases, lines, queue: None
        return
    from rich.console import Console
    from rich.live import Live

    from onerow.cli.start.demo.screen import paint

    with Live(console=Console(highlight=False), auto_refresh=False, vertical_overflow="crop") as screen:

        def show(story: Story, phases: list[str], lines: list[str], queue: Queue) -> None:
            picture = paint(story.tasks, phases, story.cast(), lines, queue.store.now(), queue.url)
            screen.update(picture, refresh=True)

        yield show
