"""`onerow demo`: a pipeline on a live board, whose worker is killed midway and whose tasks go on."""

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
@click.option("--keep", is_flag=True, help="Leave the database, to look around in it.")
@click.option("--fast", is_flag=True, help="In a few seconds, for tests.")
def command(keep: bool, fast: bool) -> None:
    """Watch a five-phase pipeline survive the death of its worker.

    Everything is real: an SQLite file in a new folder, `onerow worker` as a process, kill -9.
    """
    folder = Path(tempfile.mkdtemp(prefix="onerow-demo-"))
    url = f"sqlite:///{folder / 'demo.db'}"
    theatre = DemoProcess(folder, url, 0.25 if fast else 1.0)
    try:
        code = _perform(url, theatre)
    finally:
        theatre.close()
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    if keep:
        click.echo(f"\nThe database is kept. Look around:\n  export ONEROW_STORE={url}\n  onerow list\n  onerow stats")
    else:
        click.echo("\nYour turn:\n  onerow init my_project")
    sys.exit(code)


def _perform(url: str, theatre: DemoProcess) -> int:
    from onerow.cli.start.demo.studio import videos

    queue = Queue(open_store(url))
    queue.publish(videos)
    phases = [phase.name for phase in videos.plan.phases]
    told: list[str] = []
    began = time.monotonic()
    live = sys.stdout.isatty()

    def tell(line: str) -> None:
        told.append(f"{'':8}{line}" if line.startswith(" ") else f"{time.monotonic() - began:5.1f}s  {line}")
        if not live:
            click.echo(told[-1])

    story = Story(queue, theatre, tell)
    try:
        story.begin()
        theatre.open()
        with _screen(live) as show:
            while not story.over:
                story.look()
                show(story, phases, told, queue)
                if not theatre.running or time.monotonic() - began > _LONGEST:
                    break
                time.sleep(_FRAME)
    finally:
        queue.close()
    for line in story.summary():
        click.echo(line)
    if not story.went_well:
        raise StoreError(f"the demo did not end as it should; the worker said:\n{theatre.last_words()}")
    return 0


@contextmanager
def _screen(live: bool) -> Iterator[_Show]:
    if not live:
        yield lambda story, phases, told, queue: None
        return
    from rich.console import Console
    from rich.live import Live

    from onerow.cli.start.demo.screen import paint

    with Live(console=Console(highlight=False), auto_refresh=False, vertical_overflow="crop") as screen:

        def show(story: Story, phases: list[str], told: list[str], queue: Queue) -> None:
            picture = paint(story.tasks, phases, story.cast(), told, queue.store.now(), queue.url)
            screen.update(picture, refresh=True)

        yield show
