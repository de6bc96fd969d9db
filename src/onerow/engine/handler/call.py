"""Calling a handler: its arguments, from the row, with decoders that are prepared once; and its outcome."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, cast

import msgspec

from onerow.core import values
from onerow.core.failure import Classes, classify, failure, leaves, storable, text_of
from onerow.core.outcomes import CHOSEN, Asleep, Cancelled, CancelTask, Finish, Jump, Parked, SkipPhase
from onerow.core.plan import Plan
from onerow.core.rules.attempts import (
    CancelledItself,
    Done,
    Failed,
    Finished,
    Jumped,
    Outcome,
    Skipped,
    Sleeping,
    Snoozed,
    Stopped,
    StopReason,
    Waiting,
)
from onerow.core.task import Task
from onerow.engine.handler.context import AsyncContext, BaseContext, Context, Link
from onerow.pipelines.decoding import decoder
from onerow.pipelines.extensions import Middleware
from onerow.pipelines.handlers import Handler

_NO_RESULT = Done(None)
_decode = msgspec.json.Decoder().decode


class Call:
    """A handler with the decoders of its arguments."""

    def __init__(self, handler: Handler, plan: Plan | None) -> None:
        self.handler = handler
        self.function = handler.function
        self.errors = handler.errors
        self.resources: dict[str, Any] = {}  # by parameter; set before the first attempt
        self.middlewares: Sequence[Middleware] = ()  # around `function`
        self._arguments: list[tuple[str, bool, str, Callable[[Any], Any]]] = []
        for parameter in handler.parameters:
            what = "payload" if parameter.source in ("payload", "items") else f"result of {parameter.name}"
            self._arguments.append((parameter.name, parameter.keyword, parameter.source, decoder(parameter.type, what)))
        self.former_names = _former_names(plan)
        self.takes_items = any(source == "items" for _, _, source, _ in self._arguments)
        # Most handlers take only the payload: a fast path without the loop.
        self._payload_only = [(keyword, source) for _, keyword, source, _ in self._arguments] == [(False, "payload")]
        self._payload = self._arguments[0][3] if self._payload_only else _decode
        self.context: Callable[[Task, Link], BaseContext] = AsyncContext if handler.is_async else Context

    def payload_of(self, task: Task) -> Any:
        """Return the payload of one batch item; raise BadPayload if it does not match its annotation."""
        return self._arguments[0][3](task.payload_json)

    def arguments(self, task: Task, link: Link) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return positional and named arguments; raise BadPayload if one does not match its annotation."""
        if self._payload_only:
            return (self._payload(task.payload_json),), {}
        results: dict[str, msgspec.Raw] | None = None
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for name, keyword, source, decode in self._arguments:
            value: Any
            if source == "payload":
                value = decode(task.payload_json)
            elif source == "context":
                value = self.context(task, link)
            elif source == "resource":
                value = self.resources[name]
            else:
                if results is None:
                    results = values.members(task.results_json)
                raw = next(
                    (results[known] for known in (name, *self.former_names.get(name, ())) if known in results), None
                )
                value = None if raw is None else decode(bytes(raw))
            if keyword:
                named[name] = value
            else:
                positional.append(value)
        return tuple(positional), named


def _former_names(plan: Plan | None) -> dict[str, tuple[str, ...]]:
    return {} if plan is None else {phase.name: phase.renamed_from for phase in plan.phases if phase.renamed_from}


def outcome_of_result(result: Any) -> Outcome:
    """Return the outcome for a handler's return value."""
    if result is None:
        return _NO_RESULT
    kind = type(result)
    if kind is Jump:
        return Jumped(result.phase, values.encode(result.result, "result"), result.limit_key)
    if kind is Finish:
        return Finished(values.encode(result.result, "result"))
    return Done(values.encode(result, "result"))


def chosen_outcome(error: BaseException) -> Outcome | None:
    """Return the outcome of a raised CancelTask, SkipPhase or Snooze; None for any other exception.

    In an exception group it counts if the group holds nothing else.
    """
    found = list(leaves(error))
    if not all(issubclass(type(each), CHOSEN) for each in found):
        return None
    for kind in CHOSEN:
        for each in found:
            if issubclass(type(each), kind):
                return _chosen(kind, each)
    return None


def _chosen(kind: type[Exception], error: BaseException) -> Outcome:
    if kind is CancelTask:
        return CancelledItself(storable(text_of(error)))
    if kind is SkipPhase:
        return Skipped(storable(text_of(error)))
    span = getattr(error, "for_", None)  # a subclass may lack it
    if not isinstance(span, timedelta):
        return Failed(classify(error))
    return Snoozed(span, storable(text_of(error)), getattr(error, "scope", "task") == "phase")


def outcome_of_error(error: BaseException, stop: StopReason | None, errors: Sequence[Classes] = ()) -> Outcome:
    """Return the outcome of a handler that raised; never raises, whatever the exception's own methods do.

    stop: why the worker asked it to stop, if it did. errors: the pipeline's classifications of exceptions.
    """
    try:
        if stop is None and (parked := parked_in(error)) is not None:
            return _parked(parked)
        if (chosen := chosen_outcome(error)) is not None:
            return chosen
        if stop is None and isinstance(error, asyncio.CancelledError | Cancelled):
            return Failed(
                failure(
                    "the handler was cancelled without a request to stop", "unknown", exception=type(error).__name__
                )
            )
    except BaseException:
        pass  # raised by a method of the exception
    return Failed(classify(error, errors)) if stop is None else Stopped(stop)


def parked_in(error: BaseException) -> Parked | None:
    """Return the wait or sleep that ended an attempt, also if a task group wrapped it; else None."""
    return next((cast("Parked", each) for each in leaves(error) if issubclass(type(each), Parked)), None)


def _parked(parked: Parked) -> Outcome:
    if isinstance(parked, Asleep):
        return Sleeping(parked.name, parked.for_)
    return Waiting(parked.name, parked.awaiting, parked.timeout)
