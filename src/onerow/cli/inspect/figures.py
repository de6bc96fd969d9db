"""Commands that show failures, workers, schedules and statistics."""

from datetime import timedelta

import click

from onerow.cli import formatting
from onerow.cli.output import Cell
from onerow.cli.session import Session, with_session
from onerow.core.durations import parse_duration
from onerow.engine.control.stats import quantile


@click.command("failures")
@click.argument("query", nargs=-1)
@with_session
def failures(session: Session, query: tuple[str, ...]) -> None:
    """Group recent failures by error class, exception and line of code; QUERY filters them."""
    found = session.views.failures(" ".join(query))
    if session.out.as_json:
        session.out.json(found)
        return
    now = session.queue.store.now()
    rows: list[list[Cell]] = [
        [
            (f"{group.count:,}", "bold red"),
            f"{group.pipeline}.{group.phase}",
            f"{group.error_class} {group.exception}".rstrip(),
            group.where,
            formatting.ago(group.last_at, now),
            group.task_ids[0],
            group.error,
        ]
        for group in found.groups
    ]
    session.out.table([">count", "phase", "cause", "where", ">last", "last task", "error"], rows)
    if not found.groups:
        session.out.aside("nothing has failed")
    elif not found.all:
        session.out.aside(f"of the last {found.looked_at:,} failures; there are more")


@click.command("workers")
@with_session
def workers(session: Session) -> None:
    """List workers and the tasks they hold."""
    session.views.require_workers()
    found = session.views.workers()
    if session.out.as_json:
        session.out.json(found)
        return
    now = session.queue.store.now()
    rows: list[list[Cell]] = []
    for worker in found:
        state: Cell = ("draining", "yellow") if worker.draining else ("pulling" if worker.puller else "alive", "green")
        if not worker.alive:
            state = ("silent" if worker.seen_at else "not on the roll", "red")
        rows.append(
            [
                (worker.name, "bold"),
                state,
                formatting.ago(worker.seen_at, now),
                f"{len(worker.holds)}/{worker.concurrency}" if worker.concurrency else str(len(worker.holds)),
                ", ".join(sorted({pipeline for pipeline, _ in worker.phases})),
                "",
            ]
        )
        for inbox in worker.inboxes:
            rows.append(
                [f"  {inbox.name}", ("unavailable", "red") if inbox.error else "", "", "", (inbox.error, "red"), ""]
            )
        for held in worker.holds[:20]:
            lease = "" if held.leased_until is None else f"lease ends {formatting.due(held.leased_until, now)}"
            rows.append(
                [
                    f"  {held.task_id}",
                    "",
                    formatting.ago(held.since, now),
                    formatting.progress(held.progress),
                    f"{held.pipeline}.{held.phase}",
                    ("stopping" if held.cancel_requested else lease, "dim"),
                ]
            )
    session.out.table(["worker", "state", ">seen", ">holds", "serves", ""], rows)
    if not found:
        session.out.aside("no worker is running: onerow worker APP")


@click.command("inboxes")
@with_session
def inboxes(session: Session) -> None:
    """Count the messages of each inbox in the last day.

    found: the task existed already. duplicate: the same message again. released: delivered again later. refused: the
    signature was missing, wrong or too old. lag: the longest time from sending to the stored row.
    """
    counts = session.views.inboxes()
    if session.out.as_json:
        session.out.json(counts)
        return
    rows: list[list[Cell]] = [
        [
            (name, "bold"),
            f"{each.received:,}",
            f"{each.added:,}",
            f"{each.found:,}",
            f"{each.duplicate:,}",
            (f"{each.rejected:,}", "red") if each.rejected else "0",
            f"{each.released:,}",
            (f"{each.refused:,}", "red") if each.refused else "0",
            formatting.millis(each.lag),
        ]
        for name, each in sorted(counts.items())
    ]
    head = [
        "inbox",
        ">received",
        ">added",
        ">found",
        ">duplicate",
        ">rejected",
        ">released",
        ">refused",
        ">lag",
    ]
    session.out.table(head, rows)
    if not counts:
        session.out.aside("no messages were received in the last day: queue.receive(…) in the app, or onerow inbox URL")


@click.command("cron")
@with_session
def cron(session: Session) -> None:
    """List schedules with their last and next run."""
    found = session.views.schedules()
    if session.out.as_json:
        session.out.json(found)
        return
    now = session.queue.store.now()
    rows: list[list[Cell]] = []
    for each in found:
        pause = "" if each.pause is None else f"paused by {each.pause.by} {each.pause.reason}".rstrip()
        rows.append(
            [
                (f"{each.pipeline} {each.cron.name}", "bold"),
                each.cron.expression,
                each.cron.tz,
                "" if each.last is None else f"{formatting.ago(each.last, now)} ago",
                each.task_id,
                (pause, "yellow") if pause else formatting.due(each.next, now),
                (each.error and f"adds no task: {each.error}", "red"),
            ]
        )
    head = ["schedule", "when", "zone", "last", "last task", "next", "problem"]
    if not any(each.error for each in found):
        head, rows = head[:-1], [row[:-1] for row in rows]
    session.out.table(head, rows)
    if not found:
        session.out.aside("nothing is started by the clock here")


@click.command("stats")
@click.option("--over", default="1h", show_default=True, help="Time window, up to 24h.")
@with_session
def stats(session: Session, over: str) -> None:
    """Show outcomes and durations by phase, as counted by the workers. The last few seconds may be missing."""
    back = parse_duration(over, "--over")
    found = session.views.statistics(back)
    minutes = max(back / timedelta(minutes=1), 1)
    if session.out.as_json:
        session.out.json(
            [
                {
                    "pipeline": pipeline, "phase": phase, "done": o.done, "failed": o.failed, "retried": o.retried,
                    "cancelled": o.cancelled, "put_off": o.put_off, "rescued": o.rescued,
                    "per_minute": round(o.done / minutes, 3),
                    "run_p50_ms": quantile(o.run, 0.5), "run_p95_ms": quantile(o.run, 0.95),
                    "wait_p50_ms": quantile(o.wait, 0.5), "wait_p95_ms": quantile(o.wait, 0.95),
                }
                for (pipeline, phase), o in sorted(found.items())
            ]
        )  # fmt: skip
        return
    rows: list[list[Cell]] = [
        [
            f"{pipeline}.{phase}",
            f"{o.done:,}",
            formatting.number(o.done / minutes),
            (formatting.number(o.failed), "red"),
            formatting.number(o.retried),
            formatting.number(o.rescued),
            formatting.millis(quantile(o.run, 0.5)),
            formatting.millis(quantile(o.run, 0.95)),
            formatting.millis(quantile(o.wait, 0.5)),
            formatting.millis(quantile(o.wait, 0.95)),
        ]
        for (pipeline, phase), o in sorted(found.items())
    ]
    columns = ["phase", ">done", ">a minute", ">failed", ">retried", ">rescued"]
    session.out.table([*columns, ">run p50", ">p95", ">wait p50", ">p95"], rows)
    if not found:
        session.out.aside(f"no attempt ended in the last {over}")
