"""`onerow scale`: how many workers the work needs, and who sets that."""

import os
import threading
from collections.abc import Callable
from typing import Any

import click

from onerow.cli.output import Cell
from onerow.cli.session import Session, with_session
from onerow.cli.stop_signals import on_stop_signal
from onerow.core.durations import parse_duration
from onerow.core.errors import BadInput, OnerowError, StoreError, with_fix
from onerow.core.scaling import DEFAULT_SLOTS, Decision, ScaleSettings, ScaleState
from onerow.engine.worker.http_server import is_loopback, parse_address
from onerow.scaling.scaler import Scaler, Target
from onerow.scaling.server import ScaleAnswers, make_server
from onerow.scaling.targets import FORMS, open_target, sqs_client, sqs_counts


@click.command("scale")
@click.option("--explain", is_flag=True, help="Print the decision and apply nothing; the default.")
@click.option("--apply", "target", metavar="TARGET", help=f"Set the size of a group of workers: {FORMS}.")
@click.option("--watch", is_flag=True, help="Decide again and again until stopped.")
@click.option(
    "--serve", metavar="[HOST:]PORT", help="Answer GET /scale and /metrics; on loopback unless a host is given."
)
@click.option(
    "--token-env", metavar="VARIABLE", help="With --serve: the variable that has the bearer token of clients."
)
@click.option("--every", default="15s", show_default=True, help="With --watch: the time between two decisions.")
@click.option("--phases", multiple=True, help="Only the work of this pipeline or pipeline.phase; repeatable.")
@click.option(
    "--slots", type=click.IntRange(1), help="Concurrent tasks of one worker. Default: as the live workers have."
)
@click.option("--min", "minimum", type=click.IntRange(0), default=0, show_default=True, help="Least workers.")
@click.option("--max", "maximum", type=click.IntRange(1), default=8, show_default=True, help="Most workers.")
@click.option("--warm-pool", type=click.IntRange(0), default=0, show_default=True, help="Workers beyond the need.")
@click.option(
    "--target-wait", help="How long a ready task may wait, for example 30s. Default: each gets a slot at once."
)
@click.option("--scale-in-after", default="10m", show_default=True, help="How long a surplus must last.")
@click.option("--cool-down", default="0s", show_default=True, help="Time between two scale-outs.")
@click.option(
    "--mode",
    type=click.Choice(["leases", "inflight", "visible"]),
    default="leases",
    show_default=True,
    help="How the need is computed: by leases, or by a formula of message queues.",
)
@click.option("--sqs", metavar="URL", help="Count the messages of this SQS queue too.")
@click.option(
    "--prefix", help="With --json: also print the fields of a queue-depth function, for example video_visible."
)
@with_session
def command(
    session: Session,
    explain: bool,
    target: str | None,
    watch: bool,
    serve: str | None,
    token_env: str | None,
    every: str,
    phases: tuple[str, ...],
    slots: int | None,
    minimum: int,
    maximum: int,
    warm_pool: int,
    target_wait: str | None,
    scale_in_after: str,
    cool_down: str,
    mode: Any,
    sqs: str | None,
    prefix: str | None,
) -> None:
    """Decide how many workers the work needs, and say why.

    Backlog that can't run (a full limit, a pause, a spent rate, not due) adds no worker, and no busy worker is counted out.
    """
    if explain and target:
        raise BadInput("--explain applies nothing, --apply does", fix="give one of them", field="apply")
    if serve and (target or watch):
        raise BadInput(
            "--serve answers clients, which apply the decision", fix="leave --apply and --watch out", field="serve"
        )
    settings = ScaleSettings(
        slots=slots or DEFAULT_SLOTS,
        minimum=minimum,
        maximum=maximum,
        warm_pool=warm_pool,
        target_wait=parse_duration(target_wait, "--target-wait").total_seconds() if target_wait else None,
        scale_out_cooldown=parse_duration(cool_down, "--cool-down").total_seconds(),
        scale_in_after=parse_duration(scale_in_after, "--scale-in-after").total_seconds(),
        mode=mode,
    )
    messages = _messages(sqs)

    def scaler(scope: tuple[str, ...], applied: Target | None = None) -> Scaler:
        return Scaler(session.queue, settings, scope=scope, target=applied, messages=messages, live_slots=slots is None)

    if serve:
        _serve(session, serve, token_env, phases, scaler)
        return
    applied = open_target(target) if target else None
    one: Scaler | None = None
    state: ScaleState | None = None

    def once() -> None:
        nonlocal one, state
        one = one or scaler(phases, applied)  # fails while the store is unavailable
        decision = _round(session, one, target, prefix, state)
        if target is None:  # nothing is applied, so nothing is stored
            state = decision.state

    if watch:
        _watch(parse_duration(every, "--every").total_seconds(), once)
    else:
        once()


def _messages(url: str | None) -> Callable[[], tuple[int, int]] | None:
    if url is None:
        return None
    client = sqs_client(url)
    return lambda: sqs_counts(url, client)


def _round(
    session: Session, scaler: Scaler, target: str | None, prefix: str | None, state: ScaleState | None
) -> Decision:
    decision = scaler.decide(state)
    if target is not None:
        scaler.apply(decision)
    if session.out.as_json:
        session.out.json(decision.answer() | (decision.fields(prefix) if prefix else {}))
    else:
        _print(session, decision, target)
    return decision


_STYLES = {"scale_out": "green", "scale_in": "yellow", "at_max": "red", "hold": "bold"}


def _print(session: Session, decision: Decision, target: str | None) -> None:
    change = f"{decision.signal.count} → {decision.workers}"
    what = f"{decision.decision}  {change} workers" + (f"  {target}" if target else "")
    session.out.line(what, style=_STYLES[decision.decision])
    session.out.line(f"  {decision.why}")
    rows: list[list[Cell]] = [
        [
            f"{phase.pipeline}.{phase.phase}",
            f"{phase.ready:,}{'+' if phase.capped else ''}",
            f"{phase.soon:,}",
            f"{phase.running:,}",
            "" if phase.limit is None else f"{phase.limit:,}",
            f"{phase.runnable:,}",
            (phase.held_back_by, "yellow"),
        ]
        for phase in decision.signal.phases
        if phase.ready or phase.soon or phase.running
    ]
    if rows:
        session.out.table(["phase", ">ready", ">in 60 s", ">running", ">limit", ">can run", "held back by"], rows)


def _watch(every: float, once: Callable[[], None]) -> None:
    """Decide again and again; an unavailable store or group is reported, and the next round tries again."""
    stopping = threading.Event()
    restore = on_stop_signal(stopping.set)
    try:
        while not stopping.is_set():
            try:
                once()
            except BadInput:
                raise
            except OnerowError as error:
                click.echo(f"onerow: {with_fix(error)}; the next try is in {every:g} s", err=True)
            stopping.wait(max(every, 0.1))
    finally:
        restore()


def _serve(
    session: Session,
    address: str,
    token_env: str | None,
    phases: tuple[str, ...],
    scaler: Callable[[tuple[str, ...]], Scaler],
) -> None:
    host, port = parse_address(address, "--serve")
    token = os.environ.get(token_env, "") if token_env else ""
    if token_env and not token:
        raise BadInput(f"the environment variable {token_env} is empty", fix="put the token there", field="token_env")
    if not token and not is_loopback(host):
        raise BadInput(
            f"{host} can be reached from other hosts, and /scale names pipelines",
            fix="give --token-env VARIABLE with a bearer token, or leave the host out",
            field="serve",
        )

    def make(pipeline: str, state: ScaleState) -> Decision:
        return scaler((pipeline,) if pipeline else phases).decide(state)

    try:
        session.queue.store.check()
    except StoreError as error:  # the server starts all the same: its clients get 503 until the store is back
        click.echo(f"onerow: {with_fix(error)}", err=True)
    server = make_server(host, port, ScaleAnswers(make), token)
    stopping = threading.Event()
    restore = on_stop_signal(stopping.set)
    server.start()
    try:
        session.out.aside(f"onerow: serving {server.url}/scale and /metrics; Ctrl-C stops")
        while not stopping.wait(60):
            pass
    finally:
        server.close()
        restore()
