"""`onerow logs`: what a task's code printed and logged, now or as it comes."""

import click
import msgspec

from onerow.cli.store_option import Place, operates
from onerow.engine.output.terminal import neutral_json
from onerow.engine.views import task_log
from onerow.ports import LogLine

_STYLE = {"err": "yellow", "warning": "yellow", "error": "red", "critical": "red", "debug": "dim"}


@click.command("logs")
@click.argument("task_id", metavar="ID")
@click.option("--follow", "-f", is_flag=True, help="Go on until the task has ended, whoever works on it.")
@click.option("--tail", type=click.IntRange(1, 100_000), help="Only the last so many lines.")
@click.option("--attempt", type=click.IntRange(1), help="Only of this attempt.")
@click.option("--phase", help="Only of this phase.")
@click.option("--level", type=click.Choice(task_log.LEVELS), help="At least this; 'out' or 'err': only these.")
@click.option("--grep", metavar="PATTERN", help="Only lines that match a regular expression.")
@click.option("--raw", is_flag=True, help="Texts alone, as they came, control sequences and all.")
@operates
def command(
    place: Place,
    task_id: str,
    follow: bool,
    tail: int | None,
    attempt: int | None,
    phase: str | None,
    level: str | None,
    grep: str | None,
    raw: bool,
) -> None:
    """What a task's code printed and logged, by attempt. With --json one object a line."""
    wanted = task_log.Wanted(
        attempt=attempt, phase=phase, level=level, grep=None if grep is None else task_log.pattern(grep)
    )
    reading = task_log.follow if follow else task_log.read
    for line in reading(place.queue, task_id, wanted, tail=tail):
        if isinstance(line, task_log.Gap):
            place.out.aside(f"{line.lines:,} lines are gone: a task keeps its last 10,000 lines or 1 MB")
        else:
            _show(place, line, raw)


def _show(place: Place, line: LogLine, raw: bool) -> None:
    if place.out.as_json:
        click.echo(neutral_json(msgspec.json.encode(line).decode()))
    elif raw:
        click.echo(line.text, color=True)
    else:
        head = f"{line.at:%H:%M:%S} {line.phase}#{line.attempt}"
        place.out.line(f"{head}  {line.text.expandtabs()}", _STYLE.get(line.level, ""))
