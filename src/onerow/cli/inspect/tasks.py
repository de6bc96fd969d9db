"""Commands that read tasks: counts, list, show, why."""

import shlex
from datetime import datetime

import click

from onerow.cli import formatting
from onerow.cli.inspect.task_page import show_task
from onerow.cli.output import Cell, status_cell
from onerow.cli.session import Session, with_session
from onerow.engine.views import Row, TaskPage


@click.command("list")
@click.argument("query", nargs=-1)
@click.option("--limit", "-n", type=click.IntRange(1, 1000), default=50, show_default=True, help="Tasks per page.")
@click.option("--after", help="Cursor printed at the end of the previous page.")
@with_session
def list_(session: Session, query: tuple[str, ...], limit: int, after: str | None) -> None:
    """List tasks that match QUERY, newest first unless it says sort:. See docs/query-language.md.

    \b
    onerow list status:failed phase:video
    onerow list "error:timeout age:<1h"
    onerow list user:u1 payload.topic:tides
    onerow list "status:parked OR status:failed -user:u1"
    onerow list sort:oldest some text
    """
    asked = " ".join(query)
    page = session.views.find(asked, limit=limit, after=after)
    if session.out.as_json:
        session.out.json(page)
        return
    now = session.queue.store.now()
    users = any(row.user_id for row in page.tasks)
    columns = ["task", "status", "phase", *(["user"] if users else []), "title", ">added", "note"]
    session.out.table(
        columns,
        [
            (
                (row.task_id, "bold"),
                status_cell(row.status, row.parked),
                f"{row.pipeline}.{row.phase}",
                *([row.user_id] if users else []),
                row.title,
                formatting.ago(row.created_at, now),
                row_note(row, now),
            )
            for row in page.tasks
        ],
    )
    _say_more(session, asked, page)


def row_note(row: Row, now: datetime) -> Cell:
    """Return what matters most about a task in a list: its error, what it waits for, or its progress."""
    if row.error is not None:
        again = f"again {formatting.due(row.run_at, now)}: " if row.status == "waiting" else ""
        return f"{again}{row.error}", "red"
    if row.awaiting is not None:
        return f"for {row.awaiting.removeprefix('signal:')}", "magenta"
    if row.status == "waiting" and row.run_at > now:
        return f"due {formatting.due(row.run_at, now)}"
    if row.status == "processing":
        tries = f"attempt {row.attempt}" if row.attempt > 1 else ""
        return " ".join(part for part in (formatting.progress(row.progress), tries) if part), "cyan"
    return ""


def _say_more(session: Session, asked: str, page: TaskPage) -> None:
    if page.looked_back_to is not None:
        session.out.aside(
            f"looked at about {page.looked_at:,} tasks, back to {formatting.at(page.looked_back_to)}, then time was up"
        )
    if page.next is not None:
        query = f" {shlex.quote(asked)}" if asked else ""
        session.out.aside(f"more: onerow list{query} --after {page.next}")
    elif not page.tasks:
        session.out.aside("no task matches")


@click.command("counts")
@click.argument("query", nargs=-1)
@with_session
def counts(session: Session, query: tuple[str, ...]) -> None:
    """Count tasks by phase and status; with QUERY, count only tasks that match."""
    if query:
        _count_matching(session, " ".join(query))
        return
    overview, board = session.views.overview(), session.views.board()
    if session.out.as_json:
        session.out.json({"overview": overview, "pipelines": board.pipelines})
        return
    names = ("waiting", "processing", "parked", "failed", "completed", "cancelled")
    rows: list[list[Cell]] = []
    for pipeline in board.pipelines:
        for lane in pipeline.lanes:
            counted = [getattr(lane, name) for name in names]
            rows.append([f"{pipeline.name}.{lane.phase}", *(f"{count:,}" if count else "" for count in counted)])
    total = [getattr(overview, name) for name in names]
    rows.append([("all", "bold"), *((f"{count:,}", "bold") for count in total)])
    session.out.table(["phase", *(f">{name}" for name in names)], rows)
    if overview.ended_at < overview.at:
        session.out.aside(f"ended tasks as of {formatting.ago(overview.ended_at, overview.at)} ago")
    if not overview.workers and overview.waiting and session.views.sees_workers:
        session.out.aside("no worker is running: onerow worker APP")


def _count_matching(session: Session, query: str) -> None:
    found = session.views.count(query)
    complete = found.looked_back_to is None
    if session.out.as_json:
        session.out.json({"count": found.count, "complete": complete, "tallies": found.tallies})
        return
    rows: list[list[Cell]] = [
        [f"{t.pipeline}.{t.phase}", status_cell(t.status, t.parked), f"{t.count:,}"] for t in found.tallies
    ]
    total = f"{found.count:,}" if complete else f"{found.count:,} or more"
    rows.append([("all", "bold"), "", (total, "bold")])
    session.out.table(["phase", "status", ">count"], rows)
    if found.looked_back_to is not None:
        session.out.aside(f"looked back to {formatting.at(found.looked_back_to)}, then time was up")


@click.command("show")
@click.argument("task_id", metavar="ID")
@with_session
def show(session: Session, task_id: str) -> None:
    """Show one task: its row, why it is in its status, its timeline, payload and results."""
    view = session.views.task(session.task_id(task_id))
    if session.out.as_json:
        session.out.json(view)
    else:
        show_task(session.out, view, session.queue.store.now())


@click.command("why")
@click.argument("task_id", metavar="ID")
@with_session
def why(session: Session, task_id: str) -> None:
    """Explain in one sentence why a task is not running, and print the command that changes it."""
    reason = session.views.why(session.task_id(task_id))
    if session.out.as_json:
        session.out.json(reason)
        return
    session.out.line(reason.sentence)
    if reason.inbox:
        session.out.line(f"It came from the inbox {reason.inbox}.")
    if reason.command:
        session.out.line(f"→ {reason.advice}", "bold")
