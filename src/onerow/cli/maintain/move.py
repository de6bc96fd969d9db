"""`onerow move`: move a queue to another store."""

import click

from onerow.cli.output import Output
from onerow.engine.control import relocation
from onerow.engine.queue.move import Moved, move
from onerow.ports import Store
from onerow.wiring import open_store


@click.command("move")
@click.argument("source", metavar="SRC_URL")
@click.argument("target", metavar="DST_URL")
@click.option("--undo", is_flag=True, help="Reopen SRC_URL for tasks and workers; refused if a worker ran at DST_URL.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(source: str, target: str, undo: bool, as_json: bool) -> None:
    """Move a queue to another store: tasks with history and output, definitions, limits, pauses.

    Pauses the source first, refuses while tasks are processing, and compares every row. If it is interrupted, run it
    again: it resumes. At the end the source refuses new tasks and workers; start the workers with the new URL. Run it
    again later to add tasks that still reached the source; tasks at the target are not changed.
    """
    out = Output(as_json)
    old, new = open_store(source), open_store(target)
    try:
        old.check()
        if undo:
            _undo(out, old)
            return
        with out.progress("move") as report:
            moved = move(old, new, lambda moved_so_far: report(_share(moved_so_far)))
        if as_json:
            out.json({"source": old.url, "target": new.url, "tasks": moved.seen, "added": moved.added,
                      "renewed": moved.renewed, "lines": moved.lines, "notes": moved.notes, "left": moved.left})  # fmt: skip
            return
        if moved.left:
            out.line(
                f"{new.url} has not {moved.left:,} of the {moved.seen:,} tasks of {old.url}, {moved.first_left} for one"
            )
            out.line("  they are older than the move: purged there since, or committed late; not added, as they could run twice")  # fmt: skip
        else:
            out.line(f"{new.url} has all {moved.seen:,} tasks of {old.url}")
        out.line(f"  {moved.added:,} added, {moved.renewed:,} renewed, {moved.lines:,} lines of output, "
                 f"{moved.notes:,} notes")  # fmt: skip
        out.line(
            f"{old.url} keeps its copy, is paused, and refuses new tasks; start the workers with --store {new.url}"
        )
    finally:
        old.close()
        new.close()


def _undo(out: Output, old: Store) -> None:
    undone = relocation.undo(old)
    if out.as_json:
        out.json({"source": old.url, "undone": undone})
    else:
        out.line(f"{old.url} takes new tasks again" if undone else f"{old.url} was not moved")


def _share(moved: Moved) -> float:
    return min(1.0, moved.seen / moved.total) if moved.total else 1.0
