"""The command `operations`: operations on many tasks, with their progress."""

import click
from msgspec.structs import asdict

from onerow.cli import formatting
from onerow.cli.output import Cell
from onerow.cli.session import Session, with_session
from onerow.core.times import read
from onerow.engine.queue.progress import Progress


@click.command("operations")
@click.option("--stop", metavar="NAME", help="Ask this operation to stop; what it has changed stays so.")
@click.option("--by", default="", help="Who stops it; default: your user name.")
@with_session
def command(session: Session, stop: str | None, by: str) -> None:
    """List the latest operations on many tasks with their progress, newest first, or stop one of them."""
    if stop is not None:
        session.queue.stop_bulk(stop, by=by)
        if session.out.as_json:
            session.out.json({"stopping": stop})
        else:
            session.out.line(f"{stop} was asked to stop")
        return
    found = session.queue.bulk_operations()
    if session.out.as_json:
        session.out.json([asdict(each) for each in found])
        return
    now = session.queue.store.now()
    rows: list[list[Cell]] = [
        [
            each.name,
            (each.operation, "bold"),
            each.by,
            f"{each.done:,}/{each.matched:,}",
            formatting.number(each.refused),
            formatting.ago(read(each.started_at), now),
            _state(each),
        ]
        for each in found
    ]
    session.out.table(["name", "operation", "by", ">done", ">refused", ">started", "state"], rows)
    if not found:
        session.out.aside("no operation on many tasks yet")


def _state(each: Progress) -> Cell:
    if each.interrupted:
        return ("interrupted", "red")
    if not each.ended_at:
        return ("under way", "yellow")
    if each.stopped_by:
        return (f"stopped by {each.stopped_by}", "yellow")
    return ("whole", "green") if each.whole else ("ended early", "red")
