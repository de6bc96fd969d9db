"""`onerow logs`: print or follow the output and log lines of a task."""

import click
import msgspec

from onerow.cli.session import Session, with_session
from onerow.engine.output.terminal import neutral_json
from onerow.engine.queue import task_log
from onerow.ports import LogLine

_STYLE = {"err": "yellow", "warning": "yellow", "error": "red", "critical": "red", "debug": "dim"}


@click.command("logs")
@click.argument("task_id", metavar="ID")
@click.option(
    "--follow", "-f", is_flag=True, help="Print new lines until the task has ended, across retries and workers."
)
@click.option("--tail", type=click.IntRange(1, 100_000), help="Only the last N lines.")
@click.option("--attempt", type=click.IntRange(1), help="Only lines of this attempt.")
@click.option("--phase", help="Only lines of this phase.")
@click.option("--level", type=click.Choice(task_log.LEVELS), help="Minimum level; 'out' or 'err': only that stream.")
@click.option("--grep", metavar="PATTERN", help="Only lines that match a regular expression.")
@click.option("--raw", is_flag=True, help="Only the text, unchanged, with control sequences.")
@with_session
def command(
    session: Session,
    task_id: str,
    follow: bool,
    tail: int | None,
    attempt: int | None,
    phase: str | None,
    level: str | None,
    grep: str | None,
    raw: bool,
) -> None:
    """Show the output and log lines of a task, by attempt. With --json, print one object per line."""
    wanted = task_log.Wanted(
        attempt=attempt, phase=phase, level=level, grep=None if grep is None else task_log.pattern(grep)
    )
    reading = task_log.follow if follow else task_log.read
    for line in reading(session.queue, session.task_id(task_id), wanted, tail=tail):
        if isinstance(line, task_log.LogGap):
            session.out.aside(f"{line.lines:,} lines are gone: a task keeps its last 10,000 lines or 1 MB")
        else:
            _show(session, line, raw)


def _show(session: Session, line: LogLine, raw: bool) -> None:
    if session.out.as_json:
        click.echo(neutral_json(msgspec.json.encode(line).decode()))
    elif raw:
        click.echo(line.text, color=True)
    else:
        head = f"{line.at:%H:%M:%S} {line.phase}#{line.attempt}"
        session.out.line(f"{head}  {line.text.expandtabs()}", _STYLE.get(line.level, ""))
