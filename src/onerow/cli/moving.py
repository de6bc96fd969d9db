"""The command that moves a queue to another store."""

import click

from onerow.cli.output import Output
from onerow.engine.move import Moved, move
from onerow.wiring import open_store


@click.command("move")
@click.argument("source", metavar="SRC_URL")
@click.argument("target", metavar="DST_URL")
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
def command(source: str, target: str, as_json: bool) -> None:
    """Carry a whole queue from one store to another: tasks, their history and output, definitions, limits, pauses.

    Pauses the source first, refuses while tasks are being worked on, compares every row, and may be run again at any
    time: it goes on where it was, and a last time verifies. Then let the workers start at the new place.
    """
    out = Output(as_json)
    old, new = open_store(source), open_store(target)
    try:
        old.check()
        with out.progress("move") as told:
            moved = move(old, new, lambda far: told(_share(far)))
        if as_json:
            out.json({"source": old.url, "target": new.url, "tasks": moved.seen, "added": moved.added,
                      "renewed": moved.renewed, "lines": moved.lines, "notes": moved.notes})  # fmt: skip
        else:
            out.line(f"{new.url} has all {moved.seen:,} tasks of {old.url}, compared row by row")
            out.line(f"  {moved.added:,} added, {moved.renewed:,} renewed, {moved.lines:,} lines of output, "
                     f"{moved.notes:,} notes")  # fmt: skip
            out.line(f"{old.url} keeps its copy and is paused; start the workers with --store {new.url}")
    finally:
        old.close()
        new.close()


def _share(far: Moved) -> float:
    return min(1.0, far.seen / far.total) if far.total else 1.0
