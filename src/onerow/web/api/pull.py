"""The pull API: workers in other languages claim tasks, send heartbeats and settle them by the token of the lease."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from time import monotonic
from typing import Annotated, Any
from uuid import uuid4

from msgspec import Meta, Struct

from onerow.core import steps, values
from onerow.core.durations import parse_duration, spell_duration
from onerow.core.errors import BadInput
from onerow.core.task import Task
from onerow.engine.queue.claim import held_lease
from onerow.engine.queue.lease import Leased
from onerow.engine.queue.scope import phase_of
from onerow.ports import LogLine
from onerow.web.api.operation import operation
from onerow.web.api.tasks import Brief, Span
from onerow.web.routing import Call, Endpoint
from onerow.web.security.roles import Role

_LONGEST_WAIT = timedelta(seconds=30)
_LOOK_EVERY = 0.5
_LEVELS = ("debug", "info", "warning", "error", "out", "err")
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Token = Annotated[int, Meta(ge=0, le=2**53, description="The token of the lease.")]


class ClaimRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """wait: how long to wait for the first task, at most 30s."""

    pipeline: Name
    phase: Name | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 1
    lease_for: Span | None = None
    worker: Annotated[str, Meta(max_length=100, description="A name for `onerow workers`.")] = ""
    wait: Span = "0s"


class LeaseView(Struct, frozen=True, kw_only=True):
    """A claimed task. token: send it with each later request about this lease."""

    task_id: str
    token: int
    pipeline: str
    phase: str
    attempt: int
    payload: Any
    results: dict[str, Any]
    steps: dict[str, Any]
    metadata: dict[str, Any]
    title: str
    user_id: str
    cancel_requested: bool
    leased_until: datetime | None
    lease_for: str
    idempotency_key: str


class Claimed(Struct, frozen=True):
    leases: list[LeaseView]


class Held(Struct, frozen=True, kw_only=True):
    """cancel_requested: stop the work and settle the task; any outcome is accepted."""

    task_id: str
    leased_until: datetime | None
    cancel_requested: bool


class Settlement(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    token: Token


class ProgressReport(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far an attempt is: done of total, and a note."""

    done: float
    total: float | None = None
    note: Annotated[str, Meta(max_length=1000)] = ""


class HeartbeatRequest(Settlement, frozen=True, kw_only=True):
    lease_for: (
        Annotated[Span, Meta(description="From now on; default: the lease of the phase, whatever the claim asked for.")]
        | None
    ) = None
    progress: ProgressReport | None = None


class CompleteRequest(Settlement, frozen=True, kw_only=True):
    result: Any = None


class FailRequest(Settlement, frozen=True, kw_only=True):
    error: Annotated[str, Meta(min_length=1, max_length=100_000)]
    error_class: Annotated[str, Meta(max_length=50)] = "unknown"
    retry: Annotated[bool, Meta(description="false: the task fails at once.")] = True


class SnoozeRequest(Settlement, frozen=True, kw_only=True):
    delay: Span


class EndRequest(Settlement, frozen=True, kw_only=True):
    reason: Annotated[str, Meta(max_length=10_000)] = ""


class RememberRequest(Settlement, frozen=True, kw_only=True):
    name: Name
    value: Any = None


class Line(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    text: Annotated[str, Meta(max_length=10_000)]
    level: Annotated[str, Meta(max_length=10)] = "info"


class LogRequest(Settlement, frozen=True, kw_only=True):
    lines: Annotated[list[Line], Meta(min_length=1, max_length=1000)]


@operation(
    "POST", "/claims", Role.OPERATOR, "pull", "Claim due tasks of a phase; each lease ends unless it is extended.",
    request=ClaimRequest, answers={200: Claimed},
)  # fmt: skip
async def _claim(call: Call, asked: ClaimRequest, query: Any) -> Claimed:
    wait = parse_duration(asked.wait, "wait")
    if wait > _LONGEST_WAIT:
        raise BadInput("wait must be at most 30s", fix="claim again after an empty answer", field="wait")
    worker = values.check_text(asked.worker, "worker", 100) or f"http-{uuid4().hex[:12]}"
    until = monotonic() + wait.total_seconds()
    # Looked at before each claim: the lease of a client that is gone would have to end first.
    while not await call.request.is_disconnected():
        leases = await call.site.pool.run(_claim_now, call, asked, worker)
        if leases or monotonic() >= until:
            return Claimed(leases)
        await asyncio.sleep(_LOOK_EVERY)
    return Claimed([])


def _claim_now(call: Call, asked: ClaimRequest, worker: str) -> list[LeaseView]:
    plan, phase = phase_of(call.queue, asked.pipeline, asked.phase)
    span = phase.lease if asked.lease_for is None else parse_duration(asked.lease_for, "lease_for")
    if call.identity.user_id is None:
        call.site.pull_watch.before_claim(plan.name, phase.name, worker)
    leases = call.queue.claim(plan.name, phase.name, limit=asked.limit, lease_for=span, worker=worker)
    return [_view(lease) for lease in leases]


def _view(lease: Leased) -> LeaseView:
    task = lease.task
    return LeaseView(
        task_id=task.task_id, token=task.token, pipeline=task.pipeline, phase=task.phase, attempt=task.attempt,
        payload=task.payload, results=task.results, steps=_remembered(task), metadata=task.metadata, title=task.title,
        user_id=task.user_id, cancel_requested=lease.cancel_requested, leased_until=task.leased_until,
        lease_for=spell_duration(lease.lease_for), idempotency_key=lease.idempotency_key,
    )  # fmt: skip


def _remembered(task: Task) -> dict[str, Any]:
    """Return the values that earlier attempts of this phase remembered, by name."""
    own = steps.records(task).items()
    return {name: record.value for name, record in own if not name.startswith(steps.RESERVED)}


def _on_lease(name: str, summary: str, request: Any, apply: Callable[[Leased, Any], Task]) -> Endpoint:
    @operation(
        "POST", f"/leases/{{task_id}}/{name}", Role.OPERATOR, "pull", summary, request=request, answers={200: Brief}
    )
    def run(call: Call, asked: Any, query: Any) -> Brief:
        return Brief.of(apply(held_lease(call.queue, call.path["task_id"], asked.token), asked))

    return run


@operation(
    "POST", "/leases/{task_id}/heartbeat", Role.OPERATOR, "pull", "Extend a lease, and learn of a cancel request.",
    request=HeartbeatRequest, answers={200: Held},
)  # fmt: skip
def _heartbeat(call: Call, asked: HeartbeatRequest, query: Any) -> Held:
    lease = held_lease(call.queue, call.path["task_id"], asked.token)
    task = lease.extend(asked.lease_for)
    if asked.progress is not None:
        task = lease.progress(asked.progress.done, asked.progress.total, asked.progress.note)
    return Held(task_id=task.task_id, leased_until=task.leased_until, cancel_requested=lease.cancel_requested)


class Stored(Struct, frozen=True):
    lines: int


@operation(
    "POST", "/leases/{task_id}/log", Role.OPERATOR, "pull", "Store lines of the attempt's log.",
    request=LogRequest, answers={200: Stored},
)  # fmt: skip
def _log(call: Call, asked: LogRequest, query: Any) -> Stored:
    lease = held_lease(call.queue, call.path["task_id"], asked.token)
    task, store, masked = lease.task, call.queue.store, call.queue.masker.text
    at = store.now()
    for line in asked.lines:
        if line.level not in _LEVELS:
            raise BadInput(f"no level {line.level!r}", fix=f"use one of {', '.join(_LEVELS)}", field="level")
        values.check_text(line.text, "text", 10_000)
    store.append_log(
        [LogLine(task.task_id, at, task.phase, task.attempt, line.level, masked(line.text)) for line in asked.lines]
    )
    return Stored(len(asked.lines))


def pull_routes() -> list[Endpoint]:
    return [
        _claim,
        _heartbeat,
        _log,
        _on_lease(
            "complete", "Finish the phase: the task advances or is completed.", CompleteRequest,
            lambda lease, asked: lease.complete(asked.result),
        ),
        _on_lease(
            "fail", "Fail the attempt: it is retried if its error class and budget allow.", FailRequest,
            lambda lease, asked: lease.fail(asked.error, error_class=asked.error_class, retry=asked.retry),
        ),
        _on_lease(
            "snooze", "Put the task off, without using up a retry.", SnoozeRequest,
            lambda lease, asked: lease.snooze(parse_duration(asked.delay, "delay")),
        ),
        _on_lease(
            "cancel", "End the task as cancelled.", EndRequest, lambda lease, asked: lease.cancel(asked.reason)
        ),
        _on_lease(
            "skip", "Leave the phase without a result.", EndRequest, lambda lease, asked: lease.skip(asked.reason)
        ),
        _on_lease(
            "hand-back", "Give the task back unfinished.", Settlement, lambda lease, asked: lease.hand_back()
        ),
        _on_lease(
            "remember", "Store a value for later attempts of the phase.", RememberRequest,
            lambda lease, asked: lease.remember(asked.name, asked.value),
        ),
    ]  # fmt: skip
