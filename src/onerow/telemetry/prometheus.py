"""Prometheus metrics: of the store, read through the views, and of one worker, from its own counters.

All names begin with onerow_; no label has more values than there are phases, statuses or outcomes.
"""

from collections.abc import Iterable, Iterator, Mapping
from time import monotonic
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

import onerow
from onerow.core.errors import OnerowError
from onerow.engine.control.stats import Histogram as Buckets
from onerow.engine.control.stats import Outcomes, middle
from onerow.engine.events.events import Events, StoreUnreachable, TaskLeaseLost
from onerow.engine.queue.queue import Queue
from onerow.engine.views import Board, Views, WorkerLine
from onerow.telemetry.store_totals import StoreTotals

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PHASE = ["pipeline", "phase"]
_STATUSES = ("waiting", "parked", "processing", "completed", "failed", "cancelled")
_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3600)
_FAST = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)
_OUTCOMES = {
    "done": "done",
    "retry": "retried",
    "failed": "failed",
    "cancelled": "cancelled",
    "snoozed": "put_off",
}
"""Value of the label `outcome` → field of Outcomes."""


class StoreMetrics(Collector):
    """The gauges of a store. A scrape reads the same kept counts as the board, and never scans the table.

    views: give those of a dashboard, so that many tasks are counted once for both.
    """

    def __init__(self, queue: Queue, views: Views | None = None) -> None:
        self._queue = queue
        self._views = Views(queue) if views is None else views
        self._totals = StoreTotals()
        self.registry = CollectorRegistry()
        self.registry.register(self)
        self._reads = Histogram(
            "onerow_store_operation_seconds", "Duration of reads of the store by this server.", ["op"],
            buckets=_FAST, registry=self.registry,
        )  # fmt: skip
        self._errors = Counter(
            "onerow_store_errors", "Failed operations on the store.", ["op", "kind"], registry=self.registry
        )

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self.registry)

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        info = GaugeMetricFamily(
            "onerow_build_info", "Version of onerow and kind of store.", labels=["version", "store"]
        )
        info.add_metric([onerow.__version__, self._queue.url.partition(":")[0]], 1)
        yield info
        up = GaugeMetricFamily("onerow_store_up", "Whether the store answers.")
        began = monotonic()
        try:
            board, workers = self._views.board(), self._views.workers(holds=False)
            self._totals.read(self._queue.store)
        except OnerowError as error:
            self._errors.labels("read", type(error).__name__).inc()
            up.add_metric([], 0)
            yield up
            return
        self._reads.labels("read").observe(monotonic() - began)
        up.add_metric([], 1)
        yield up
        yield from _board_families(board)
        yield from _worker_families(board, workers)
        yield from _outcome_families(self._totals.totals)


def _board_families(board: Board) -> Iterator[Metric]:
    tasks = GaugeMetricFamily("onerow_tasks", "Tasks by status.", labels=[*_PHASE, "status"])
    oldest = GaugeMetricFamily(
        "onerow_oldest_ready_age_seconds", "How long the first due task has waited; 0 if none is due.", labels=_PHASE
    )
    workers = GaugeMetricFamily("onerow_phase_workers", "Live workers that serve the phase.", labels=_PHASE)
    paused = GaugeMetricFamily("onerow_phase_paused", "Whether the phase is paused.", labels=_PHASE)
    limits = GaugeMetricFamily("onerow_phase_limit", "Concurrency limit of the phase, if it has one.", labels=_PHASE)
    for pipeline in board.pipelines:
        for lane in pipeline.lanes:
            labels = [lane.pipeline, lane.phase]
            for status in _STATUSES:
                tasks.add_metric([*labels, status], getattr(lane, status))
            age = 0.0 if lane.oldest is None else max(0.0, (board.at - lane.oldest).total_seconds())
            oldest.add_metric(labels, age)
            workers.add_metric(labels, lane.workers)
            paused.add_metric(labels, lane.paused is not None)
            if lane.limit is not None:
                limits.add_metric(labels, lane.limit)
    yield from (tasks, oldest, workers, paused, limits)


def _worker_families(board: Board, lines: list[WorkerLine]) -> Iterator[Metric]:
    live = [line for line in lines if line.alive]
    slots = GaugeMetricFamily("onerow_worker_slots", "Slots of live workers.", labels=["state"])
    busy = sum(lane.processing for pipeline in board.pipelines for lane in pipeline.lanes)
    slots.add_metric(["busy"], busy)
    slots.add_metric(["free"], max(0, sum(line.concurrency for line in live) - busy))
    workers = GaugeMetricFamily("onerow_workers", "Live workers and pullers.", labels=["state"])
    workers.add_metric(["working"], sum(not line.draining for line in live))
    workers.add_metric(["draining"], sum(line.draining for line in live))
    yield from (slots, workers)


class HasTotals(Protocol):
    """A worker, as far as its metrics need it."""

    @property
    def totals(self) -> Mapping[tuple[str, str], Outcomes]: ...


class WorkerMetrics(Collector):
    """The counters of one worker process, for its own port.

    worker: has the outcomes by (pipeline, phase) since its start, which it counts anyway.
    """

    def __init__(self, events: Events, worker: HasTotals) -> None:
        self._worker = worker
        self.registry = CollectorRegistry()
        self.registry.register(self)
        self._lost = Counter("onerow_lease_lost", "Attempts that lost their lease.", _PHASE, registry=self.registry)
        self._errors = Counter(
            "onerow_store_errors", "Failed operations on the store.", ["op", "kind"], registry=self.registry
        )
        self._events = events
        events.on(TaskLeaseLost, self._on_lost)
        events.on(StoreUnreachable, self._on_unreachable)

    def close(self) -> None:
        self._events.off(TaskLeaseLost, self._on_lost)
        self._events.off(StoreUnreachable, self._on_unreachable)

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self.registry)

    def _on_lost(self, event: TaskLeaseLost) -> None:
        self._lost.labels(event.task.pipeline, event.task.phase).inc()

    def _on_unreachable(self, event: StoreUnreachable) -> None:
        self._errors.labels("round", "StoreUnavailable").inc()

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield from _outcome_families(self._worker.totals)


def _outcome_families(totals: Mapping[tuple[str, str], Outcomes]) -> Iterator[Metric]:
    attempts = CounterMetricFamily(
        "onerow_attempts", "Settled attempts; error_class is empty if none failed.",
        labels=[*_PHASE, "outcome", "error_class"],
    )  # fmt: skip
    whole = HistogramMetricFamily(
        "onerow_task_duration_seconds", "Time from added to completed, of completed tasks.", labels=["pipeline"]
    )
    by_pipeline: dict[str, Buckets] = {}
    expired = CounterMetricFamily("onerow_leases_expired", "Tasks rescued from dead workers.", labels=_PHASE)
    run = HistogramMetricFamily("onerow_attempt_duration_seconds", "Duration of attempts.", labels=_PHASE)
    wait = HistogramMetricFamily("onerow_wait_seconds", "Time from due to claimed.", labels=_PHASE)
    for phase, found in sorted(dict(totals).items()):  # a copy: the worker adds phases at any time
        errors = dict(found.errors)
        for name, count in sorted(errors.items()):
            attempts.add_metric([*phase, *name.split("/", 1)], count)
        for outcome, field in _OUTCOMES.items():
            # Workers of earlier versions counted no classes.
            classed = sum(count for name, count in errors.items() if name.startswith(f"{outcome}/"))
            attempts.add_metric([*phase, outcome, ""], getattr(found, field) - classed)
        buckets = by_pipeline.setdefault(phase[0], {})
        for number, count in dict(found.whole).items():
            buckets[number] = buckets.get(number, 0) + count
        expired.add_metric(phase, found.rescued)
        _add_histogram(run, phase, dict(found.run))
        _add_histogram(wait, phase, dict(found.wait))
    for pipeline, buckets in by_pipeline.items():
        _add_histogram(whole, (pipeline,), buckets)
    yield from (attempts, expired, run, wait, whole)


def _add_histogram(family: HistogramMetricFamily, labels: tuple[str, ...], found: Buckets) -> None:
    """Add one histogram; the worker's buckets are finer (an eighth of a power of two) and are counted by their middle."""
    counts = [0] * (len(_SECONDS) + 1)
    total = 0.0
    for number, count in found.items():
        seconds = middle(number) / 1000
        total += seconds * count
        counts[next((index for index, bound in enumerate(_SECONDS) if seconds <= bound), len(_SECONDS))] += count
    so_far, buckets = 0, []
    for bound, count in zip([*map(str, _SECONDS), "+Inf"], counts, strict=True):
        so_far += count
        buckets.append((bound, so_far))
    family.add_metric(list(labels), buckets, total)
