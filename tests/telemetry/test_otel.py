"""One trace from the adder through every phase and attempt, with the SDK's in-memory exporters."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from onerow import Context, Pipeline, Queue, Retry, Snooze, Worker
from onerow.telemetry.otel import TraceIds, instrument
from tests.web.kit import until


class Recorded:
    """Spans and metrics of one test."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider([self._reader])

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def metrics(self) -> dict[str, Any]:
        data = self._reader.get_metrics_data()
        assert data is not None
        return {
            metric.name: metric.data
            for resource in data.resource_metrics for scope in resource.scope_metrics for metric in scope.metrics
        }  # fmt: skip

    def close(self) -> None:
        self.tracers.shutdown()
        self.meters.shutdown()


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    found = Recorded()
    yield found
    found.close()


@contextmanager
def working(queue: Queue) -> Iterator[None]:
    worker = Worker(queue)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join()


def clips(seen: list[logging.LogRecord]) -> Pipeline:
    pipeline = Pipeline("clips")
    snoozed: list[str] = []
    log = logging.getLogger("clips")
    log.setLevel(logging.INFO)
    handler = logging.Handler()
    handler.emit = seen.append  # type: ignore[method-assign, assignment]
    handler.addFilter(TraceIds())
    log.handlers = [handler]
    log.propagate = False

    @pipeline.phase(retry=Retry(max_retries=2, wait="10ms"))
    def script(payload: str, ctx: Context) -> str:
        log.info("writing")
        if ctx.attempt == 1:
            raise ConnectionError("refused")
        return payload

    @pipeline.phase
    async def video(payload: str) -> str:
        if not snoozed:
            snoozed.append(payload)
            raise Snooze("10ms")
        await asyncio.sleep(0)
        return payload

    return pipeline


def test_one_trace_joins_adder_phases_and_attempts(sqlite_url: str, recorded: Recorded) -> None:
    seen: list[logging.LogRecord] = []
    queue = Queue(sqlite_url)
    queue.serve(clips(seen))
    instrument(queue, tracer_provider=recorded.tracers, meter_provider=recorded.meters)
    try:
        with working(queue):
            with recorded.tracers.get_tracer("app").start_as_current_span("request") as request:
                task = queue.add("clips", "x", metadata={"order": 7})
            stored = queue.get(task.task_id)
            assert stored.metadata["order"] == 7
            assert stored.metadata["traceparent"].split("-")[1] == format(request.get_span_context().trace_id, "032x")
            queue.wait(task.task_id, timeout="60s")
            queue.annotate(task.task_id, {"order": 8})  # the trace context stays
            assert queue.get(task.task_id).metadata == {"order": 8, "traceparent": stored.metadata["traceparent"]}
            until(lambda: len(recorded.named("process clips.video")) == 2)
    finally:
        queue.close()
    trace_ids = {span.context.trace_id for span in recorded.spans if span.context is not None}
    assert len(trace_ids) == 1
    (sent,) = recorded.named("send clips")
    assert sent.kind is SpanKind.PRODUCER
    failed, written = recorded.named("process clips.script")
    assert all(each.parent is not None for each in (failed, written))
    assert failed.parent is not None
    assert sent.context is not None
    assert failed.parent.span_id == sent.context.span_id
    assert failed.kind is SpanKind.CONSUMER
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.attributes is not None
    assert written.attributes is not None
    assert failed.attributes["error.type"] == "ConnectionError"
    assert (failed.attributes["onerow.attempt"], written.attributes["onerow.attempt"]) == (1, 2)
    assert failed.attributes["messaging.message.id"] == task.task_id
    snoozed, _ = recorded.named("process clips.video")
    assert snoozed.status.status_code is StatusCode.UNSET
    assert snoozed.attributes is not None
    assert snoozed.attributes["onerow.outcome"] == "Snooze"

    assert written.context is not None
    ids = {(record.__dict__["trace_id"], record.__dict__["span_id"]) for record in seen}
    assert (format(written.context.trace_id, "032x"), format(written.context.span_id, "016x")) in ids

    found = recorded.metrics()
    assert sum(point.value for point in found["messaging.client.sent.messages"].data_points) == 1
    assert sum(point.count for point in found["messaging.process.duration"].data_points) == 4
    errors = [point for point in found["messaging.process.duration"].data_points if "error.type" in point.attributes]
    assert [point.count for point in errors] == [1]


def test_children_and_many_tasks_join_the_trace(sqlite_url: str, recorded: Recorded) -> None:
    parents, children = Pipeline("parents"), Pipeline("children")

    @children.phase
    def one(payload: int) -> int:
        return payload

    @parents.phase
    def spawn(payload: int, ctx: Context) -> None:
        ctx.spawn(children, [1, 2])

    queue = Queue(sqlite_url)
    queue.serve(parents, children)
    instrument(queue, tracer_provider=recorded.tracers)
    instrument(queue, tracer_provider=recorded.tracers)  # twice does no harm
    try:
        with working(queue):
            queue.add_many("parents", [1])
            until(lambda: len(recorded.named("process children.one")) == 2)
    finally:
        queue.close()
    assert len({span.context.trace_id for span in recorded.spans if span.context is not None}) == 1
    assert len(recorded.named("process parents.spawn")) == 1


def test_a_task_without_a_trace_begins_one_at_its_first_attempt(sqlite_url: str, recorded: Recorded) -> None:
    queue = Queue(sqlite_url)
    queue.serve(clips([]))
    task = queue.add("clips", "x")
    assert queue.get(task.task_id).metadata == {}
    instrument(queue, tracer_provider=recorded.tracers)
    try:
        with working(queue):
            queue.wait(task.task_id, timeout="60s")
            until(lambda: len(recorded.spans) == 4)
    finally:
        queue.close()
    assert trace.get_current_span().get_span_context().is_valid is False
