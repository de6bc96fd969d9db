"""OpenTelemetry: one trace from the adder of a task through every phase and attempt, metrics, and ids in log records.

`instrument(queue)` in the programs that add and in the app of the workers. The trace context is kept in the row's
metadata, so a trace joins phases that run on other machines days later. All names of attributes are in this module:
the conventions for messaging are not stable yet.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Any

from opentelemetry import context, metrics, propagate, trace
from opentelemetry.metrics import Counter as CounterInstrument
from opentelemetry.metrics import Histogram, MeterProvider
from opentelemetry.trace import Link, SpanKind, Status, StatusCode, TracerProvider

import onerow
from onerow.core.outcomes import Cancelled, CancelTask, Parked, SkipPhase, Snooze
from onerow.core.task import Task
from onerow.core.trace_context import CARRIED
from onerow.engine.handler.context import Context
from onerow.engine.queue.queue import Queue

_SYSTEM = {"messaging.system": "onerow"}
_CHOSEN = (Snooze, SkipPhase, CancelTask, Cancelled, Parked)  # outcomes that a handler chooses; they are no errors


class _Instruments:
    """The tracer and the instruments in use; providers that were not given are looked up when they are first used."""

    def __init__(self) -> None:
        self.use(None, None)

    def use(self, tracers: TracerProvider | None, meters: MeterProvider | None) -> None:
        self.tracer = trace.get_tracer("onerow", onerow.__version__, tracers)
        meter = metrics.get_meter("onerow", onerow.__version__, meters)
        self.sent: CounterInstrument = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Tasks that were added."
        )
        self.consumed: CounterInstrument = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Attempts that were started."
        )
        self.duration: Histogram = meter.create_histogram("messaging.process.duration", "s", "Duration of attempts.")


_instruments = _Instruments()


def instrument(
    queue: Queue, *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
) -> None:
    """Trace the adds of a queue and the attempts of its workers. Without providers, the global ones are used."""
    if tracer_provider is not None or meter_provider is not None:
        _instruments.use(tracer_provider, meter_provider)
    queue.around_add = _send
    if not any(each.function is trace_attempt for each in queue.middlewares):
        queue.middleware(trace_attempt)


@contextmanager
def _send(pipeline: str, count: int) -> Iterator[Mapping[str, str]]:
    """Surround an add with a span, and carry its context in the new tasks."""
    attributes: dict[str, Any] = {
        **_SYSTEM,
        "messaging.operation.type": "send",
        "messaging.operation.name": "add",
        "messaging.destination.name": pipeline,
    }
    with _instruments.tracer.start_as_current_span(
        f"send {pipeline}", kind=SpanKind.PRODUCER,
        attributes=attributes | ({"messaging.batch.message_count": count} if count > 1 else {}),
    ):  # fmt: skip
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        yield {key: carrier[key] for key in CARRIED if key in carrier}
        _instruments.sent.add(count, attributes)


def trace_attempt(ctx: Context) -> Iterator[None]:
    """Middleware: surround an attempt with a span of the trace in which its task was added.

    A function of a module, so that isolated handlers have it too.
    """
    task = ctx.task
    tasks = ctx.tasks or (task,)
    attributes: dict[str, Any] = {
        **_SYSTEM,
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.destination.name": f"{task.pipeline}.{task.phase}",
    }
    own = {"messaging.message.id": task.task_id, "onerow.attempt": task.attempt, "onerow.worker": task.leased_by or ""}
    if task.limit_key:
        own["onerow.key"] = task.limit_key
    if len(tasks) > 1:
        own["messaging.batch.message_count"] = len(tasks)
    links = [link for each in tasks[1:] if (link := _link(each)) is not None]
    began = monotonic()
    token = context.attach(_context_of(task))
    span = _instruments.tracer.start_span(
        f"process {task.pipeline}.{task.phase}", kind=SpanKind.CONSUMER, attributes=attributes | own, links=links
    )
    inner = context.attach(trace.set_span_in_context(span))
    try:
        yield
    except _CHOSEN as chosen:
        span.set_attribute("onerow.outcome", type(chosen).__name__)
        raise
    except BaseException as error:
        attributes["error.type"] = type(error).__qualname__
        span.set_attribute("error.type", type(error).__qualname__)
        span.record_exception(error)
        span.set_status(Status(StatusCode.ERROR, str(error)[:500]))
        raise
    finally:
        context.detach(inner)
        span.end()
        context.detach(token)
        _instruments.consumed.add(len(tasks), attributes)
        _instruments.duration.record(monotonic() - began, attributes)


def _context_of(task: Task) -> context.Context:
    metadata = task.metadata
    carrier = {key: value for key in CARRIED if isinstance(value := metadata.get(key), str)}
    return propagate.extract(carrier)


def _link(task: Task) -> Link | None:
    found = trace.get_current_span(_context_of(task)).get_span_context()
    return Link(found) if found.is_valid else None


class TraceIds(logging.Filter):
    """Adds trace_id and span_id to log records, '' outside of a span: `handler.addFilter(TraceIds())`."""

    def filter(self, record: logging.LogRecord) -> bool:
        found = trace.get_current_span().get_span_context()
        record.trace_id = format(found.trace_id, "032x") if found.is_valid else ""
        record.span_id = format(found.span_id, "016x") if found.is_valid else ""
        return True
