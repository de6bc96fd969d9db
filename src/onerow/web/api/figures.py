"""What the store and its workers do: overview, board, statistics, workers, schedules, failures, definitions."""

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from onerow.core.durations import parse_duration
from onerow.core.errors import BadInput
from onerow.core.plan import Plan
from onerow.engine.control.schedules import Scheduled
from onerow.engine.control.stats import KEPT_FOR, quantile
from onerow.engine.views import Board, Failures, Overview, WorkerLine
from onerow.web.api.operation import operation
from onerow.web.api.tasks import Query, Span
from onerow.web.routing import Call, Endpoint
from onerow.web.security.roles import Role


class OverQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    over: Annotated[Span, Meta(description="The last minutes or hours, at most 24h.")] = "5m"


class FailuresQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    query: Query = ""


class PhaseStatistics(Struct, frozen=True, kw_only=True):
    """Outcomes of one phase in a period; times in milliseconds."""

    pipeline: str
    phase: str
    attempts: int
    done: int
    failed: int
    retried: int
    cancelled: int
    put_off: int
    rescued: int
    run_p50: int | None
    run_p95: int | None
    wait_p50: int | None
    wait_p95: int | None


class Statistics(Struct, frozen=True):
    at: datetime
    over: str
    phases: list[PhaseStatistics]


class Workers(Struct, frozen=True):
    workers: list[WorkerLine]


class Schedules(Struct, frozen=True):
    schedules: list[Scheduled]


class Pipelines(Struct, frozen=True):
    pipelines: list[Plan]


def _span(query: OverQuery) -> Any:
    span = parse_duration(query.over, "over")
    if not 0 < span.total_seconds() <= KEPT_FOR * 60:
        raise BadInput("over must be more than 0s and at most 24h", field="over")
    return span


@operation("GET", "/overview", Role.VIEWER, "figures", "Summarise the store.", query=OverQuery, answers={200: Overview})
def _overview(call: Call, body: None, query: OverQuery) -> Overview:
    return call.views.overview(_span(query))


@operation(
    "GET", "/board", Role.VIEWER, "figures", "Return pipelines and phases with counts, limits, pauses and rates.",
    query=OverQuery, answers={200: Board},
)  # fmt: skip
def _board(call: Call, body: None, query: OverQuery) -> Board:
    return call.views.board(_span(query))


@operation(
    "GET", "/stats", Role.VIEWER, "figures", "Return outcomes and durations by phase.",
    query=OverQuery, answers={200: Statistics}, all_users=True,
)  # fmt: skip
def _stats(call: Call, body: None, query: OverQuery) -> Statistics:
    found = call.views.statistics(_span(query))
    phases = [
        PhaseStatistics(
            pipeline=pipeline, phase=phase, attempts=each.attempts, done=each.done, failed=each.failed,
            retried=each.retried, cancelled=each.cancelled, put_off=each.put_off, rescued=each.rescued,
            run_p50=quantile(each.run, 0.5), run_p95=quantile(each.run, 0.95),
            wait_p50=quantile(each.wait, 0.5), wait_p95=quantile(each.wait, 0.95),
        )
        for (pipeline, phase), each in sorted(found.items())
    ]  # fmt: skip
    return Statistics(call.queue.store.now(), query.over, phases)


@operation(
    "GET", "/workers", Role.VIEWER, "figures", "List workers and the tasks they hold.",
    answers={200: Workers}, all_users=True,
)  # fmt: skip
def _workers(call: Call, body: None, query: Any) -> Workers:
    return Workers(call.views.workers())


@operation(
    "GET", "/schedules", Role.VIEWER, "figures", "List schedules with their last and next times.",
    answers={200: Schedules}, all_users=True,
)  # fmt: skip
def _schedules(call: Call, body: None, query: Any) -> Schedules:
    return Schedules(call.views.schedules())


@operation(
    "GET", "/failures", Role.VIEWER, "figures", "Group recent failures by cause.",
    query=FailuresQuery, answers={200: Failures},
)  # fmt: skip
def _failures(call: Call, body: None, query: FailuresQuery) -> Failures:
    return call.views.failures(query.query)


@operation(
    "GET", "/pipelines", Role.VIEWER, "figures", "List the published definitions: phases and payload types.",
    answers={200: Pipelines}, all_users=True,
)  # fmt: skip
def _pipelines(call: Call, body: None, query: Any) -> Pipelines:
    return Pipelines(list(call.views.plans().values()))


def figure_routes() -> list[Endpoint]:
    return [_overview, _board, _stats, _workers, _schedules, _failures, _pipelines]
