"""`onerow logs`: what a task's code printed and logged, now or as it comes."""

import time

import click
import msgspec

from onerow.cli import words
from onerow.cli.place import Place, operates
from onerow.ports import LogPage

_STYLE = {"err": "yellow", "warning": "yellow", "error": "red", "critical": "red", "debug": "dim"}


@click.command("logs")
@click.argument("task_id", metavar="ID")
@click.option("--follow", "-f", is_flag=True, help="Go on until the task has ended.")
@click.option("--tail", type=click.IntRange(1, 100_000), help="Only the last so many lines.")
@operates
def command(place: Place, task_id: str, follow: bool, tail: int | None) -> None:
    """What a task's code printed and logged, by attempt. With --json one object a line."""
    queue = place.queue
    page = queue.logs(task_id, tail=tail)
    _show(place, page, first=tail is None)
    while True:
        ended = queue.get(task_id).ended
        more = queue.logs(task_id, after=page.next)
        if more.lines:
            page = more
            _show(place, page, first=False)
        elif not follow or ended:
            return
        else:
            time.sleep(0.2)


def _show(place: Place, page: LogPage, *, first: bool) -> None:
    if first and page.dropped:
        place.out.aside(f"{page.dropped:,} earlier lines are gone")
    for line in page.lines:
        if place.out.as_json:
            click.echo(msgspec.json.encode(line).decode())
        else:
            head = f"{line.at:%H:%M:%S} {line.phase}#{line.attempt}"
            place.out.line(f"{head}  {words.clean(line.text)}", _STYLE.get(line.level, ""))
