"""Commands that change tasks, by id or by query; many tasks need a confirmation."""

import functools
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import click
import msgspec

from onerow.cli.output import status_cell
from onerow.cli.store_option import HANDFUL, Place, operates
from onerow.cli.values import moment, payload
from onerow.core.errors import BadInput, IllegalMove, KeyTaken, LostRace, UnknownName
from onerow.core.status import COMPLETED, FAILED, OPEN, PROCESSING, WAITING, Status
from onerow.core.task import Task

Act = Callable[[str], Task]
_PAGE = 500


def acts(*statuses: Status) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add ID…, --where, --dry-run, --yes, --by and --note to a command, and apply the operation that it returns.

    statuses: the default statuses for --where, unless its query names some.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @click.argument("ids", nargs=-1, metavar="[ID]...")
        @click.option("--where", metavar="QUERY", help="All tasks that match the query, instead of ids.")
        @click.option("--dry-run", is_flag=True, help="Only show what would be done.")
        @click.option(
            "--yes", "-y", is_flag=True, help=f"Don't ask for confirmation (asked from {HANDFUL + 1} tasks on)."
        )
        @click.option("--by", default="", help="Who does this; default: your user name.")
        @click.option("--note", default="", help="The reason; kept in the task's history.")
        @operates
        @functools.wraps(function)
        def run(
            place: Place,
            ids: Sequence[str],
            where: str | None,
            dry_run: bool,
            yes: bool,
            by: str,
            note: str,
            **given: Any,
        ) -> None:
            act: Act = function(place, {"by": by, "note": note}, **given)
            chosen = _chosen(place, ids, where, frozenset(statuses))
            _apply(place, click.get_current_context().info_name or "act", chosen, act, dry_run, yes)

        return run

    return decorate


@click.command("retry")
@acts(FAILED)
def retry(place: Place, said: dict[str, Any]) -> Act:
    """Run failed tasks again from their current phase, with a new retry budget."""
    return lambda task_id: place.queue.retry(task_id, by=said["by"], note=said["note"])


@click.command("cancel")
@acts(WAITING, PROCESSING, FAILED)
def cancel(place: Place, said: dict[str, str]) -> Act:
    """Cancel tasks and their children. Running work is stopped within about a second."""
    return lambda task_id: place.queue.cancel(task_id, **said)


@click.command("replay")
@click.option("--phase", help="The phase to start from; default: the first.")
@acts(COMPLETED, FAILED)
def replay(place: Place, said: dict[str, str], phase: str | None) -> Act:
    """Run completed or failed tasks again from an earlier phase; the results from that phase on are cleared."""
    return lambda task_id: place.queue.replay(task_id, phase, **said)


@click.command("finish")
@click.option(
    "--phase", "phase_only", is_flag=True, help="Complete only the current phase; the task continues with the next."
)
@acts(WAITING, FAILED)
def finish(place: Place, said: dict[str, str], phase_only: bool) -> Act:
    """Mark waiting or failed tasks as completed without running them."""
    return lambda task_id: place.queue.finish(task_id, phase_only=phase_only, **said)


@click.command("reschedule")
@click.option("--to", "when", required=True, help="now, +10m, or a time like 2026-11-15T09:00:00+09:00.")
@acts(WAITING)
def reschedule(place: Place, said: dict[str, str], when: str) -> Act:
    """Change when waiting tasks are due; for parked tasks, change the deadline."""
    run_at: datetime = moment(when, place.queue.store.now())
    return lambda task_id: place.queue.reschedule(task_id, run_at, **said)


@click.command("priority")
@click.option("--to", "value", type=click.IntRange(-100, 100), required=True, help="-100…100, lower runs first.")
@acts(*OPEN)
def priority(place: Place, said: dict[str, str], value: int) -> Act:
    """Change the priority of tasks; lower numbers run first."""
    return lambda task_id: place.queue.set_priority(task_id, value, **said)


@click.command("signal")
@click.argument("task_id", metavar="ID")
@click.argument("name")
@click.argument("fields", nargs=-1, metavar="[FIELD=VALUE]...")
@click.option("--payload", "text", help="The payload as JSON, or @FILE, or - for standard input.")
@click.option("--signal-id", default="", help="Idempotency key: a signal sent again with this id counts once.")
@operates
def signal(place: Place, task_id: str, name: str, fields: tuple[str, ...], text: str | None, signal_id: str) -> None:
    """Send the signal NAME to a task. A signal that arrives before the wait is kept for it."""
    task = place.queue.signal(task_id, name, payload(fields, text), signal_id=signal_id)
    if place.out.as_json:
        place.out.json({"task_id": task.task_id, "status": task.status, "awaiting": task.awaiting})
    else:
        place.out.line(f"signalled {name} to {task.task_id}")


def _chosen(place: Place, ids: Sequence[str], where: str | None, statuses: frozenset[Status]) -> list[Task]:
    if bool(ids) == (where is not None):
        raise click.UsageError("give one or more ids, or --where QUERY")
    store = place.queue.store
    if where is None:
        found = {task.task_id: task for task in store.fetch(ids) if task.purged_at is None}
        for task_id in ids:
            if task_id not in found:
                raise UnknownName(f"no task {task_id!r}; look at: onerow list", field="task_id")
        return [found[task_id] for task_id in dict.fromkeys(ids)]
    asked = place.views.filter(where)
    if not asked.statuses:
        asked = msgspec.structs.replace(asked, statuses=statuses)
    tasks: list[Task] = []
    after = None
    while True:
        page = store.find(asked, limit=_PAGE, order="oldest", after=after)
        tasks += page.tasks
        after = page.next
        if after is None:
            return tasks


def _apply(place: Place, name: str, tasks: list[Task], act: Act, dry_run: bool, yes: bool) -> None:
    out = place.out
    if dry_run:
        if out.as_json:
            out.json({"would": name, "count": len(tasks), "tasks": [task.task_id for task in tasks]})
            return
        out.table(
            ["task", "status", "phase", "title"],
            [
                (t.task_id, status_cell(t.status, t.parked), f"{t.pipeline}.{t.phase}", t.title)
                for t in tasks[: 4 * HANDFUL]
            ],
        )
        out.line(f"would {name} {_tasks(len(tasks))}")
        return
    if len(tasks) > HANDFUL and not yes:
        if not sys.stdin.isatty() or out.as_json:
            raise BadInput(f"this would {name} {_tasks(len(tasks))}; say so with --yes, or look first with --dry-run")
        click.confirm(f"{name} {_tasks(len(tasks))}?", abort=True, err=True)
    done: list[Task] = []
    refused: list[tuple[str, str]] = []
    for task in out.each(tasks, name):
        try:
            done.append(act(task.task_id))
        except (IllegalMove, KeyTaken, LostRace) as error:
            refused.append((task.task_id, str(error)))
    _report(place, name, done, refused)


def _report(place: Place, name: str, done: list[Task], refused: list[tuple[str, str]]) -> None:
    out = place.out
    if out.as_json:
        out.json(
            {
                "act": name,
                "done": [{"task_id": t.task_id, "status": t.status, "phase": t.phase} for t in done],
                "refused": [{"task_id": task_id, "reason": reason} for task_id, reason in refused],
            }
        )
    else:
        for task in done[: 4 * HANDFUL]:
            asked = ", stopping" if task.cancel_requested and task.status is PROCESSING else ""
            out.line(f"{name} {task.task_id}: {task.status}{asked} in {task.phase}")
        if len(done) > 4 * HANDFUL:
            out.line(f"… {_tasks(len(done))} in all")
        if not done and not refused:
            out.line(f"nothing to {name}")
        for _, reason in refused[: 4 * HANDFUL]:
            out.aside(f"onerow: {reason}")
        if len(refused) > 4 * HANDFUL:
            out.aside(f"… {_tasks(len(refused))} refused in all")
    if refused:
        sys.exit(1)


def _tasks(count: int) -> str:
    return f"{count:,} task" + ("" if count == 1 else "s")
