"""Commands on phases, workers and ended tasks: pause, resume, limit, drain, purge."""

import shlex

import click

from onerow.cli.session import Session, with_session
from onerow.core.durations import parse_duration
from onerow.core.errors import BadInput
from onerow.core.filters import Filter
from onerow.core.status import ENDS, Status
from onerow.engine.control.definitions import UNCHANGED, Limit
from onerow.engine.queue.scope import plan_of

_PURGE_STEP = 2_000
_CRON = "cron:"


@click.command("pause")
@click.argument("pipeline")
@click.argument("phase", default="*")
@click.option("--reason", default="", help="The reason; `onerow why` shows it.")
@click.option("--by", default="", help="Who pauses it; default: your user name.")
@with_session
def pause(session: Session, pipeline: str, phase: str, reason: str, by: str) -> None:
    """Stop claiming from PHASE (default: the whole PIPELINE) until it is resumed. Running tasks continue.

    With cron:NAME as PHASE, pause the schedule NAME instead.
    """
    if phase.startswith(_CRON):
        session.queue.crons.pause(pipeline, phase.removeprefix(_CRON), reason=reason, by=by)
    else:
        session.queue.pause(pipeline, phase, reason=reason, by=by)
    undo = shlex.join(["onerow", "resume", pipeline, *([] if phase == "*" else [phase])])
    _print(session, {"paused": _name(pipeline, phase)}, f"paused {_name(pipeline, phase)}; to undo it: {undo}")


@click.command("resume")
@click.argument("pipeline")
@click.argument("phase", default="*")
@with_session
def resume(session: Session, pipeline: str, phase: str) -> None:
    """Resume PHASE, a schedule (cron:NAME) or, without PHASE, the whole PIPELINE."""
    if phase.startswith(_CRON):
        was = session.queue.crons.resume(pipeline, phase.removeprefix(_CRON))
    else:
        was = session.queue.resume(pipeline, phase)
    name = _name(pipeline, phase)
    _print(session, {"resumed": name, "was_paused": was}, f"resumed {name}" if was else f"{name} was not paused")


@click.command("limit")
@click.argument("pipeline")
@click.argument("phase")
@click.argument("concurrency", required=False, metavar="[N]")
@click.option("--per-key", metavar="N", help="Concurrency limit for each limit key ('none': no limit).")
@click.option("--rate", metavar="RATE", help="Starts per time, over all workers: 60/min ('none': no limit).")
@click.option("--rate-per-key", metavar="RATE", help="The same for each limit key.")
@click.option("--reason", default="", help="The reason; `onerow why` shows it.")
@click.option("--by", default="", help="Who sets it; default: your user name.")
@click.option("--reset", is_flag=True, help="Remove all overrides; the limits and rates in the code apply again.")
@with_session
def limit(
    session: Session,
    pipeline: str,
    phase: str,
    concurrency: str | None,
    per_key: str | None,
    rate: str | None,
    rate_per_key: str | None,
    reason: str,
    by: str,
    reset: bool,
) -> None:
    """Let at most N tasks of PHASE run at once over all workers ('none': no limit). Without options, show the limits.

    A limit overrides the one in the code. N, --per-key, --rate and --rate-per-key are separate: setting one leaves the
    others as they are. Workers follow within about two seconds.
    """
    queue = session.queue
    given = any(each is not None for each in (concurrency, per_key, rate, rate_per_key))
    if reset and given:
        raise click.UsageError("--reset removes all limits; leave the others out")
    if reset:
        queue.reset_limit(pipeline, phase)
    elif given:
        queue.set_limit(
            pipeline, phase, concurrency=_limit(concurrency), per_key=_limit(per_key), rate=_rate(rate),
            rate_per_key=_rate(rate_per_key), by=by, reason=reason,
        )  # fmt: skip
    _print_limits(session, pipeline, plan_of(queue, pipeline).phase(phase).name)


def _print_limits(session: Session, pipeline: str, phase: str) -> None:
    line = next(line for line in session.views.phases(pipeline=pipeline) if line.phase == phase)
    lane, setting = line.lane, line.setting
    text = f"{pipeline}.{phase}: {lane.limit or 'any number'} at once"
    if lane.per_key:
        text += f", {lane.per_key} for each key"
    if line.rate:
        text += f", rate {line.rate}"
    if line.rate_per_key:
        text += f", rate {line.rate_per_key} for each key"
    text += f"; {lane.processing} now"
    if setting is not None and setting.by:
        text += f"; set by {setting.by}" + (f": {setting.reason}" if setting.reason else "")
    answer: dict[str, object] = {
        "limit": lane.limit, "per_key": lane.per_key, "rate": line.rate or None,
        "rate_per_key": line.rate_per_key or None, "processing": lane.processing, "setting": setting,
    }  # fmt: skip
    _print(session, answer, text)


def _rate(given: str | None) -> str | None:
    return UNCHANGED if given is None else None if given == "none" else given


def _limit(given: str | None) -> Limit:
    if given is None:
        return UNCHANGED
    if given == "none":
        return None
    if not given.isdecimal():
        raise BadInput(f"a limit is a whole number or 'none', not {given!r}", field="limit")
    return int(given)


@click.command("drain")
@click.argument("worker")
@click.option("--by", default="", help="Who asks for it; default: your user name.")
@with_session
def drain(session: Session, worker: str, by: str) -> None:
    """Ask WORKER to drain: within some seconds it claims no more, finishes its tasks and ends.

    No other process takes its place. Names of workers are in: onerow workers
    """
    session.queue.drain(worker, by=by)
    _print(session, {"draining": worker}, f"{worker} was asked to drain")


@click.command("purge")
@click.option("--older-than", required=True, metavar="SPAN", help="Minimum time since the end: 30d, 12h.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice([status.value for status in Status if status in ENDS]),
    help="Only tasks with this status; default: all ended tasks.",
)
@click.option("--pipeline", help="Only tasks of this pipeline.")
@click.option("--dry-run", is_flag=True, help="Only print the number of tasks.")
@click.option("--yes", "-y", is_flag=True, help="Don't ask for confirmation.")
@with_session
def purge(
    session: Session, older_than: str, statuses: tuple[str, ...], pipeline: str | None, dry_run: bool, yes: bool
) -> None:
    """Delete tasks that ended long ago and their output. Unique keys that are still remembered are kept."""
    span = parse_duration(older_than, "--older-than")
    chosen = frozenset(Status(status) for status in statuses) or ENDS
    before = session.queue.store.now() - span
    count = sum(
        t.count for t in session.queue.store.count(Filter(statuses=chosen, ended_before=before, pipeline=pipeline))
    )
    if dry_run:
        _print(session, {"would_purge": count}, f"would purge {count:,} tasks")
        return
    session.confirm("purge", count, yes, above=0)
    gone = 0
    with session.out.progress("purge") as report:
        while step := session.queue.purge(older_than=span, statuses=chosen, pipeline=pipeline, limit=_PURGE_STEP):
            gone += step
            report(min(gone / max(count, 1), 1.0))
    _print(session, {"purged": gone}, f"purged {gone:,} tasks")


def _name(pipeline: str, phase: str) -> str:
    return pipeline if phase == "*" else f"{pipeline}.{phase}"


def _print(session: Session, answer: dict[str, object], text: str) -> None:
    if session.out.as_json:
        session.out.json(answer)
    else:
        session.out.line(text)
