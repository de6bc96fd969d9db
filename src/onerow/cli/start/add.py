"""Commands that add work: publish, add."""

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

import click

from onerow.cli import formatting
from onerow.cli.app import app_argument, load_app, shown_store
from onerow.cli.output import Output
from onerow.cli.session import Session, with_session
from onerow.cli.values import payload
from onerow.core.addition import Addition
from onerow.core.errors import BadInput
from onerow.core.times import parse_moment
from onerow.engine.control import definitions
from onerow.engine.events.events import TasksStranded
from onerow.engine.events.log import stranded

_BATCH = 1_000


@click.command("publish")
@app_argument
@click.option("--force", is_flag=True, help="Replace a newer definition: a deliberate rollback.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def publish(app: str, store: str | None, force: bool, as_json: bool) -> None:
    """Write the pipeline definitions of APP (module[:queue]) to the store.

    Workers and commands use them. If workers run, the command returns when all of them follow the new definitions.
    """
    out = Output(as_json)
    queue = load_app(app, store)
    before, plans = definitions.stored(queue.store), {name: each.plan for name, each in queue.pipelines.items()}
    changed = queue.publish(force=force)
    older = definitions.replaced(queue.store, plans.values())
    if as_json:
        out.json({"store": queue.url, "pipelines": list(queue.pipelines), "changed": changed, "older": older})
    else:
        for name in queue.pipelines:
            said = "published" if name in changed else "older than the published definition" if name in older else "as before"  # fmt: skip
            out.line(f"{name}: {said} in {shown_store(queue)}")
    for found in definitions.stranded(queue.store, before, {name: plans[name] for name in changed}):
        out.aside(stranded(TasksStranded(*found)))
    if older:
        out.aside("older definitions were not published; to go back to them: onerow publish APP --force")
        sys.exit(1)


@click.command("add")
@click.argument("pipeline")
@click.argument("fields", nargs=-1, metavar="[FIELD=VALUE]...")
@click.option("--payload", "text", help="The payload as JSON, or @FILE, or - for standard input.")
@click.option(
    "--lines", type=click.File("r", encoding="utf-8"), help="Add one task per line; each line is a JSON payload."
)
@click.option("--id", "task_id", help="Your own task id; adding it again adds nothing.")
@click.option("--user", "user_id", default="", help="The user id of the owner.")
@click.option("--title", help="Title; default: made by the pipeline.")
@click.option("--run-at", help="Earliest start: now, +10m, or a time like 2026-11-15T09:00:00+09:00.")
@click.option("--delay", metavar="SPAN", help="Earliest start, counted from now: 10m, 1h30m. Instead of --run-at.")
@click.option("--priority", type=click.IntRange(-100, 100), default=0, help="-100…100, lower runs first.")
@click.option("--unique", help="Unique key: no second open task is added with it.")
@click.option("--unique-for", help="Keep the unique key after the end of the task ('7d', 'forever').")
@click.option("--limit-key", default="", help="Limit key: the group for limits per key.")
@click.option("--max-retries", type=click.IntRange(0, 1000), help="Retry limit, instead of that of each phase.")
@click.option("--metadata", help="Your own JSON object, stored with the task.")
@with_session
def add(
    session: Session, pipeline: str, fields: tuple[str, ...], text: str | None, lines: Any, run_at: str | None,
    metadata: str | None, **terms: Any,
) -> None:  # fmt: skip
    """Add a task to PIPELINE. The definition must be in the store: onerow publish or a worker writes it.

    \b
    onerow add videos topic=tides seconds=30
    onerow add videos --payload '{"topic": "tides"}' --run-at +10m --user u1
    """
    queue = session.queue
    if run_at is not None:
        terms["run_at"] = parse_moment(run_at, queue.store.now())
    if metadata is not None:
        terms["metadata"] = payload((), metadata)
    if lines is not None:
        if fields or text is not None or terms["task_id"]:
            raise BadInput(
                "--lines brings the payloads", fix="leave FIELD=VALUE, --payload and --id out", field="lines"
            )
        _add_lines(session, pipeline, lines, {name: value for name, value in terms.items() if name != "task_id"})
        return
    before = queue.store.fetch([terms["task_id"]]) if terms["task_id"] else []
    started = queue.store.now()
    task = queue.add(pipeline, payload(fields, text), **terms)
    existed = bool(before) or task.created_at < started
    if session.out.as_json:
        session.out.json({"task_id": task.task_id, "status": task.status, "phase": task.phase, "existed": existed})
        return
    session.out.line(task.task_id)
    if existed:
        session.out.aside(f"it was there already: {task.status} in {task.phase}")
    elif not any(worker.alive for worker in session.views.workers(holds=False)):
        session.out.aside("no worker is running: onerow worker APP")


def _add_lines(session: Session, pipeline: str, lines: Any, terms: dict[str, Any]) -> None:
    """Add one task per line, a batch at a time; exit with 1 if a line is refused after others were added."""
    added, last = 0, 0  # last: the number of the last line whose task was added
    problem = ""
    try:
        for batch in _batches(lines):
            additions = [Addition(payload_, **terms) for _, payload_ in batch]
            try:
                added += len(session.queue.add_many(pipeline, additions))
            except BadInput as error:
                raise _with_line(error, [number for number, _ in batch]) from None
            last = batch[-1][0]
            if sys.stderr.isatty():
                click.echo(f"\r{added:,} added", nl=False, err=True)
    except BadInput as error:
        if not added:
            raise BadInput(f"{error}", fix="nothing was added", field="lines") from None
        problem = f"{error}; correct it and add the rest, from line {last + 1} on"
    if session.out.as_json:
        session.out.json({"added": added} | ({"problem": problem, "last_line": last} if problem else {}))
    else:
        session.out.line(f"{formatting.number(added) or '0'} added")
    if problem:
        session.out.aside(problem)
        sys.exit(1)


def _batches(lines: Any) -> Iterator[list[tuple[int, Any]]]:
    """Yield the payloads with the numbers of their lines."""
    batch: list[tuple[int, Any]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            batch.append((number, json.loads(line)))
        except ValueError as error:
            raise BadInput(f"line {number} is not JSON ({error})", field="lines") from None
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _with_line(error: BadInput, numbers: list[int]) -> BadInput:
    """Return the error with the number of the line instead of that of the item."""
    item = re.match(r"item (\d+): ", str(error))
    number, text = (numbers[int(item[1])], str(error)[item.end() :]) if item else (numbers[0], str(error))
    return BadInput(f"line {number}: {text}", field=error.field) if item or len(numbers) == 1 else error
