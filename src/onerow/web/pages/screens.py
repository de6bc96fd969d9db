"""The pages that read one or two views each: overview, board, failures, phases, workers, schedules, operations, system."""

import platform
from datetime import datetime, timedelta
from time import perf_counter
from typing import Any

from cronsim import CronSim
from msgspec.structs import asdict

from onerow.core import schedule
from onerow.core.filters import Filter
from onerow.core.status import FAILED, PROCESSING
from onerow.engine.control.definitions import load_controls
from onerow.engine.control.schedules import Scheduled
from onerow.engine.views import FailureGroup, Holding, PipelineBoard, Row
from onerow.engine.views.choke import choke_points
from onerow.ports import Administrable
from onerow.web.pages.page import Ask, Page

RANGES = {
    "15m": timedelta(minutes=15),
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "24h": timedelta(hours=24),
}
_CARDS = 500
_SCHEDULES = 100
_PINGS = 20


def read_rail(ask: Ask) -> dict[str, Any]:
    """Return what the rail beside every page shows: pipelines with their counts."""
    board = ask.views.board()
    lanes = [lane for pipeline in board.pipelines for lane in pipeline.lanes]
    workers = ask.views.workers(holds=False)
    return {
        "rail": {
            "pipelines": [_summed(pipeline) for pipeline in board.pipelines],
            "failed": sum(lane.failed for lane in lanes),
            "open": sum(lane.waiting + lane.processing + lane.parked for lane in lanes),
            "parked": sum(lane.parked for lane in lanes),
            "workers": sum(worker.alive and not worker.only_receives for worker in workers),
        }
    }


def _summed(pipeline: PipelineBoard) -> dict[str, Any]:
    names = ("waiting", "processing", "parked", "failed", "completed")
    counts = {name: sum(getattr(lane, name) for lane in pipeline.lanes) for name in names}
    unserved = any(lane.has_code and not lane.workers and (lane.waiting or lane.processing) for lane in pipeline.lanes)
    paused = any(lane.paused for lane in pipeline.lanes)
    return {"name": pipeline.name, "unserved": unserved, "paused": paused, **counts}


def read_overview(ask: Ask) -> dict[str, Any]:
    over = ask.one_of("over", RANGES, "1h")
    pulse, board, overview = ask.views.pulse(RANGES[over]), ask.views.board(), ask.views.overview()
    total = pulse.total
    times = [int(moment.timestamp()) for moment in pulse.times]
    busiest = sorted(pulse.phases, key=lambda each: -(each.waiting + each.processing))[:8]
    charts = [
        {
            "name": "outcomes", "title": "Ended attempts", "note": "by outcome",
            "data": {"kind": "bars", "times": times, "step": int(pulse.step.total_seconds()), "series": [
                ["done", "completed", total.done], ["retried", "waiting", total.retried], ["failed", "failed", total.failed],
            ]},
        },
        {
            "name": "run", "title": "Run time", "note": "p50, p95, p99", "data": {
                "kind": "lines", "times": times, "unit": "ms", "series": [
                    ["p50", "completed", total.run_p50], ["p95", "processing", total.run_p95], ["p99", "failed", total.run_p99],
                ]},
        },
        {
            "name": "wait", "title": "Wait for a worker", "note": "p50, p95, p99", "data": {
                "kind": "lines", "times": times, "unit": "ms", "series": [
                    ["p50", "completed", total.wait_p50], ["p95", "processing", total.wait_p95], ["p99", "failed", total.wait_p99],
                ]},
        },
        {
            "name": "backlog", "title": "Backlog by phase", "note": "now", "data": {
                "kind": "stacks", "labels": [f"{each.pipeline}.{each.phase}" for each in busiest], "series": [
                    ["waiting", "waiting", [each.waiting for each in busiest]],
                    ["processing", "processing", [each.processing for each in busiest]],
                    ["parked", "parked", [each.parked for each in busiest]],
                ]},
        },
    ]  # fmt: skip
    return {
        "ranges": list(RANGES), "over": over, "overview": overview, "board": board, "charts_shown": charts,
        "attention": ask.views.attention(),
        "totals": {"done": sum(total.done), "failed": sum(total.failed)},
        "slots": sum(worker.concurrency for worker in ask.views.workers(holds=False) if worker.alive),
    }  # fmt: skip


def read_board(ask: Ask) -> dict[str, Any]:
    board = ask.views.board()
    found = {pipeline.name: pipeline for pipeline in board.pipelines}
    name = ask.get("pipeline") or next(iter(found), "")
    pipeline = found.get(name)
    values: dict[str, Any] = {"pipeline": pipeline, "at": board.at, "board_name": name}
    if pipeline is None:
        return values | {"pipeline": None}
    cards: dict[str, list[Row]] = {}
    for status in (PROCESSING, FAILED):
        # Of all pipelines, because an index has the latest tasks by status only.
        for row in ask.views.find(Filter(statuses=frozenset({status})), limit=_CARDS).tasks:
            if row.pipeline == name:
                cards.setdefault(row.phase, []).append(row)
    pauses = load_controls(ask.queue.store).pauses
    return values | {"cards": cards, "whole_pause": pauses.get((name, "*")), "chokes": choke_points(board)}


class _Cause(FailureGroup, frozen=True, kw_only=True):
    """A group of failures with the query that selects it and the text for an issue."""

    query: str
    issue: str


def read_failures(ask: Ask) -> dict[str, Any]:
    query = ask.get("q")
    found = ask.views.failures(query)
    groups = []
    for group in found.groups:
        where = group.tasks_query
        if group.exception:
            where += f" error:{_quoted(group.exception)}"
        issue = "\n".join(
            [
                f"### {group.exception or group.error_class} in {group.pipeline}.{group.phase}",
                "",
                f"- {group.count} tasks failed, first {group.first_at:%Y-%m-%d %H:%M}Z, last {group.last_at:%Y-%m-%d %H:%M}Z",
                f"- where: `{group.where}`" if group.where else f"- class: {group.error_class}",
                f"- for example: {', '.join(group.task_ids)}",
                "",
                "```",
                group.error,
                "```",
            ]
        )
        groups.append(_Cause(**asdict(group), query=where, issue=issue))
    return {"groups": groups, "looked_at": max(found.looked_at, 1), "q": query}


def _quoted(text: str) -> str:
    return f'"{text}"' if any(c in text for c in ' ()"') else text


def read_phases(ask: Ask) -> dict[str, Any]:
    return {"phases": ask.views.phases()}


def read_workers(ask: Ask) -> dict[str, Any]:
    workers = sorted(ask.views.workers(), key=lambda worker: (worker.host, worker.name))
    plans = ask.views.plans()

    def lease_of(held: Holding) -> float:
        return held.lease(plans).total_seconds()

    alive = [worker for worker in workers if worker.alive]
    return {"alive": alive, "lost": [worker for worker in workers if not worker.alive], "lease_of": lease_of}


class _Shown(Scheduled, frozen=True):
    words: str
    upcoming: list[datetime]


def read_schedules(ask: Ask) -> dict[str, Any]:
    now = ask.queue.store.now()
    schedules, shown = ask.views.schedules(), []
    begin = int(after) if (after := ask.get("after")).isdecimal() else 0
    end = begin + _SCHEDULES
    for each in schedules[begin:end]:
        upcoming = [each.next]
        while len(upcoming) < 3:
            upcoming.append(schedule.next_time(each.cron, upcoming[-1]))
        words = CronSim(each.cron.expression, now).explain()
        shown.append(_Shown(**asdict(each), words=words, upcoming=upcoming))
    return {"schedules": shown, "next": end if end < len(schedules) else None}


def read_operations(ask: Ask) -> dict[str, Any]:
    return {"operations": ask.queue.bulk_operations()}


def read_system(ask: Ask) -> dict[str, Any]:
    queue, views = ask.queue, ask.views
    findings = [*views.store_findings(), *views.findings(quick=True)]
    store = queue.store
    report = "\n".join(f"{each.level}: {each.what}" + (f" ({each.fix})" if each.fix else "") for each in findings)
    return {
        "findings": sorted(findings, key=lambda each: ("bad", "slow", "good").index(each.level)),
        "kind": queue.url.partition(":")[0],
        "schema": store.migration() if isinstance(store, Administrable) else None,
        "latency": _latency(queue.store.fetch),
        "inboxes": sorted(views.inboxes().items()),
        "python": platform.python_version(),
        "report": report,
        "decision": ask.scale.decision(),
        "sizes": (sizes := views.store_sizes()),
        "whole_size": sum(each.bytes for each in sizes if each.name != "free pages"),
    }


def _latency(fetch: Any) -> dict[str, Any]:
    """Measure reads of one row that does not exist."""
    taken = []
    for _ in range(_PINGS):
        began = perf_counter()
        fetch(["-"])
        taken.append((perf_counter() - began) * 1000)
    taken.sort()
    return {"p50": taken[len(taken) // 2], "p95": taken[int(len(taken) * 0.95)], "count": len(taken)}


RAIL = Page(path="rail", title="", template="rail.html", read=read_rail, every=2.0)
SCREENS = [
    Page(path="", title="Overview", template="overview.html", read=read_overview, charts=True),
    Page(path="board", title="Board", template="board.html", read=read_board),
    Page(path="failures", title="Failures", template="failures.html", read=read_failures, every=2.0),
    Page(path="phases", title="Phases", template="phases.html", read=read_phases, all_users=True, every=2.0),
    Page(path="workers", title="Workers", template="workers.html", read=read_workers, all_users=True),
    Page(path="schedules", title="Schedules", template="schedules.html", read=read_schedules, all_users=True, every=2.0),
    Page(path="operations", title="Operations", template="operations.html", read=read_operations, all_users=True),
    Page(path="system", title="System", template="system.html", read=read_system, all_users=True, every=5.0),
]  # fmt: skip
