"""Commands that change tasks, by id or by query; many tasks need a confirmation."""

import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from typing import Any

import click
from msgspec.structs import replace

from onerow.cli.output import Output, status_cell
from onerow.cli.session import CONFIRM_ABOVE, Session, tasks_text, with_session
from onerow.cli.values import payload
from onerow.core.errors import BadInput, OnerowError, with_fix
from onerow.core.failure import ERROR_CLASSES
from onerow.core.status import PROCESSING
from onerow.core.task import Task
from onerow.core.times import parse_moment
from onerow.engine.queue.bulk import Selection, filter_for
from onerow.engine.queue.compare_and_swap import pages
from onerow.engine.queue.operations import BULK_DEFAULTS
from onerow.engine.queue.progress import Progress

_SHOWN = 4 * CONFIRM_ABOVE


def operation(name: str, *, recorded: bool = True) -> Callable[[Callable[..., Progress]], Callable[..., Any]]:
    """Add ID…, --where, --pace, --dry-run, --yes, --by and --note to a command, and pass it the selected tasks.

    name: its line in BULK_DEFAULTS; for a final operation, --where always asks for confirmation. recorded: the history
    says who did it and why.
    """
    final = BULK_DEFAULTS[name].final
    asked = f"asked from {CONFIRM_ABOVE + 1} tasks on" + (", and always with --where" if final else "")

    def decorate(function: Callable[..., Progress]) -> Callable[..., Any]:
        @click.argument("ids", nargs=-1, metavar="[ID]...")
        @click.option("--where", metavar="QUERY", help="All tasks that match the query, instead of ids.")
        @click.option("--pace", metavar="RATE", help="Maximum rate, like 20/min; default: all at once.")
        @click.option("--dry-run", is_flag=True, help="Only show what would be done.")
        @click.option("--yes", "-y", is_flag=True, help=f"Don't ask for confirmation ({asked}).")
        @with_session
        @functools.wraps(function)
        def run(
            session: Session, ids: Sequence[str], where: str | None, dry_run: bool, yes: bool, **options: Any
        ) -> None:
            selection, tasks = _select(session, name, ids, where)
            count = selection.count
            if dry_run:
                _show(session.out, name, tasks, count)
                return
            session.confirm(name, count, yes, above=0 if final and where is not None else CONFIRM_ABOVE)
            report = _Report(session.out, name)
            with session.out.progress(name) as show_share:

                def progress(so_far: Progress) -> None:
                    show_share(min((so_far.done + so_far.refused) / max(so_far.matched, 1), 1.0))

                function(session, selection, progress=progress, each=report.add, **options)
            report.print()

        return _author(_reason(run)) if recorded else run

    return decorate


_author = click.option("--by", default="", help="Who does this; default: your user name.")
_reason = click.option("--note", default="", help="The reason; kept in the task's history.")


@click.command("retry")
@operation("retry")
def retry(session: Session, tasks: Selection, **how: Any) -> Progress:
    """Run failed tasks again from their current phase, with a new retry budget."""
    return tasks.retry(**how)


@click.command("cancel")
@operation("cancel")
def cancel(session: Session, tasks: Selection, **how: Any) -> Progress:
    """Cancel tasks and their children. Running work is stopped within about a second."""
    return tasks.cancel(**how)


@click.command("replay")
@click.option("--phase", help="The phase to start from; default: the first.")
@operation("replay")
def replay(session: Session, tasks: Selection, phase: str | None, **how: Any) -> Progress:
    """Run completed or failed tasks again from an earlier phase; the results from that phase on are cleared."""
    return tasks.replay(phase, **how)


@click.command("finish")
@click.option("--phase-only", is_flag=True, help="Complete only the current phase; the task continues with the next.")
@click.option("--result", "text", help="The result of the phase as JSON, or @FILE, or - for standard input.")
@operation("finish")
def finish(session: Session, tasks: Selection, phase_only: bool, text: str | None, **how: Any) -> Progress:
    """Mark waiting or failed tasks as completed without running them."""
    return tasks.finish(phase_only=phase_only, result=payload((), text), **how)


@click.command("reschedule")
@click.option("--run-at", required=True, help="now, +10m, or a time like 2026-11-15T09:00:00+09:00.")
@operation("reschedule")
def reschedule(session: Session, tasks: Selection, run_at: str, **how: Any) -> Progress:
    """Change when waiting tasks are due; for parked tasks, change the deadline."""
    return tasks.reschedule(parse_moment(run_at, session.queue.store.now()), **how)


@click.command("set-priority")
@click.option("--priority", type=click.IntRange(-100, 100), required=True, help="-100…100, lower runs first.")
@operation("set-priority")
def set_priority(session: Session, tasks: Selection, priority: int, **how: Any) -> Progress:
    """Change the priority of tasks; lower numbers run first."""
    return tasks.set_priority(priority, **how)


@click.command("fail")
@click.option("--error", required=True, help="The reason; it becomes the task's error.")
@click.option(
    "--error-class", type=click.Choice(ERROR_CLASSES), default="permanent", show_default=True, help="Its class."
)
@operation("fail")
def fail(session: Session, tasks: Selection, error: str, error_class: str, **how: Any) -> Progress:
    """Fail waiting tasks, for example because their signal will not come; retry undoes it."""
    return tasks.fail(error, error_class=error_class, **how)


@click.command("annotate")
@click.option("--metadata", "text", required=True, help="A JSON object, or @FILE, or - for standard input.")
@operation("annotate", recorded=False)
def annotate(session: Session, tasks: Selection, text: str, **how: Any) -> Progress:
    """Replace the metadata of tasks."""
    return tasks.annotate(payload((), text), **how)


@click.command("signal")
@click.argument("task_id", metavar="ID")
@click.argument("name")
@click.argument("fields", nargs=-1, metavar="[FIELD=VALUE]...")
@click.option("--payload", "text", help="The payload as JSON, or @FILE, or - for standard input.")
@click.option("--signal-id", default="", help="Idempotency key: a signal sent again with this id counts once.")
@with_session
def signal(
    session: Session, task_id: str, name: str, fields: tuple[str, ...], text: str | None, signal_id: str
) -> None:
    """Send the signal NAME to a task. A signal that arrives before the wait is kept for it."""
    task = session.queue.signal(session.task_id(task_id), name, payload(fields, text), signal_id=signal_id)
    if session.out.as_json:
        session.out.json({"task_id": task.task_id, "status": task.status, "awaiting": task.awaiting})
    else:
        session.out.line(f"signalled {name} to {task.task_id}")


def _select(session: Session, name: str, ids: Sequence[str], where: str | None) -> tuple[Selection, Iterable[Task]]:
    """Return the selected tasks for an operation, and an iterable over them for a dry run."""
    if bool(ids) == (where is not None):
        raise click.UsageError("give one or more ids, or --where QUERY")
    queue = session.queue
    if where is None:
        selection = queue.select(ids=[session.task_id(given) for given in ids])
        return selection, list(selection)  # raises for an unknown id before any task is changed
    asked = filter_for(queue, name, where)
    return queue.select(asked), chain.from_iterable(pages(queue, asked, "oldest"))


def _show(out: Output, name: str, tasks: Iterable[Task], count: int) -> None:
    """Print what a command would change."""
    if out.as_json:
        ids = [task.task_id for task in tasks]
        out.json({"would": name, "count": len(ids), "tasks": ids})
        return
    out.table(
        ["task", "status", "phase", "title"],
        [
            (t.task_id, status_cell(t.status, t.parked), f"{t.pipeline}.{t.phase}", t.title)
            for t in islice(tasks, _SHOWN)
        ],
    )
    out.line(f"would {name} {tasks_text(count)}")


class _Report:
    """What a command has done; without --json it keeps only the tasks that it prints."""

    def __init__(self, out: Output, name: str) -> None:
        self._out = out
        self._name = name
        self._most = None if out.as_json else _SHOWN
        self._done: list[Task] = []
        self._refused: list[tuple[Task, OnerowError]] = []
        self._counts = [0, 0]

    def add(self, task: Task, error: OnerowError | None) -> None:
        self._counts[error is not None] += 1
        # Large fields are dropped: a query may select a million tasks.
        small = replace(task, payload_json="null", results_json="{}", logs_json="[]", steps_json="{}")
        if error is None and (self._most is None or len(self._done) < self._most):
            self._done.append(small)
        if error is not None and (self._most is None or len(self._refused) < self._most):
            self._refused.append((small, error))

    def print(self) -> None:
        """Print the results; exit with 1 if tasks were refused."""
        done, refused = self._counts
        if refused and not done and isinstance(self._refused[0][1], BadInput):
            raise self._refused[0][1]  # the command itself is wrong, not the state of a task
        if self._out.as_json:
            self._out.json(
                {
                    "operation": self._name,
                    "done": [{"task_id": t.task_id, "status": t.status, "phase": t.phase} for t in self._done],
                    "refused": [
                        {"task_id": t.task_id, "reason": str(error), "fix": error.fix} for t, error in self._refused
                    ],
                }
            )
        else:
            self._print_lines(done, refused)
        if refused:
            sys.exit(1)

    def _print_lines(self, done: int, refused: int) -> None:
        out, name = self._out, self._name
        for task in self._done:
            stopping = ", stopping" if task.cancel_requested and task.status is PROCESSING else ""
            out.line(f"{name} {task.task_id}: {task.status}{stopping} in {task.phase}")
        if done > _SHOWN:
            out.line(f"… {tasks_text(done)} in all")
        if not done and not refused:
            out.line(f"nothing to {name}")
        for _, error in self._refused:
            out.aside(f"onerow: {with_fix(error)}")
        if refused > _SHOWN:
            out.aside(f"… {tasks_text(refused)} refused in all")
