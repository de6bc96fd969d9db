"""A durable task queue for multi-phase work in your own database: one task is one row from first phase to last."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onerow.core.addition import Addition
    from onerow.core.errors import (
        BadInput,
        BadPayload,
        BadQuery,
        IllegalMove,
        KeyTaken,
        LeaseLost,
        OnerowError,
        PipelineError,
        RetryTransaction,
        StoreError,
        StoreUnavailable,
        UnknownName,
        WaitTimeout,
    )
    from onerow.core.filters import Filter
    from onerow.core.outcomes import (
        Cancelled,
        ChildrenFailed,
        Finish,
        Jump,
        Permanent,
        RateLimited,
        Snooze,
        WaitExpired,
    )
    from onerow.core.retry import Retry
    from onerow.core.status import Status
    from onerow.core.task import Task
    from onerow.engine.events.events import (
        TaskAdded,
        TaskAdvanced,
        TaskCancelled,
        TaskCompleted,
        TaskFailed,
        TaskRescued,
        TaskRetried,
    )
    from onerow.engine.handler.batch import Item
    from onerow.engine.handler.context import Context
    from onerow.engine.queue.lease import Leased
    from onerow.engine.queue.puller import Puller
    from onerow.engine.worker import Worker
    from onerow.pipelines.pipeline import Pipeline
    from onerow.wiring import Queue

__version__ = "0.1.0"

__all__ = [
    "Addition",
    "BadInput",
    "BadPayload",
    "BadQuery",
    "Cancelled",
    "ChildrenFailed",
    "Context",
    "Filter",
    "Finish",
    "IllegalMove",
    "Item",
    "Jump",
    "KeyTaken",
    "LeaseLost",
    "Leased",
    "OnerowError",
    "Permanent",
    "Pipeline",
    "PipelineError",
    "Puller",
    "Queue",
    "RateLimited",
    "Retry",
    "RetryTransaction",
    "Snooze",
    "Status",
    "StoreError",
    "StoreUnavailable",
    "Task",
    "TaskAdded",
    "TaskAdvanced",
    "TaskCancelled",
    "TaskCompleted",
    "TaskFailed",
    "TaskRescued",
    "TaskRetried",
    "UnknownName",
    "WaitExpired",
    "WaitTimeout",
    "Worker",
    "__version__",
]

# Each name is imported at its first use, so that `onerow --help` doesn't wait for the engine.
_HOMES = {
    "onerow.core.errors": "BadInput BadPayload BadQuery IllegalMove KeyTaken LeaseLost OnerowError PipelineError "
    "RetryTransaction StoreError StoreUnavailable UnknownName WaitTimeout",
    "onerow.core.outcomes": "Cancelled ChildrenFailed Finish Jump Permanent RateLimited Snooze WaitExpired",
    "onerow.pipelines.pipeline": "Pipeline",
    "onerow.core.filters": "Filter",
    "onerow.core.retry": "Retry",
    "onerow.core.status": "Status",
    "onerow.core.task": "Task",
    "onerow.core.addition": "Addition",
    "onerow.engine.handler.batch": "Item",
    "onerow.engine.handler.context": "Context",
    "onerow.engine.events.events": "TaskAdded TaskAdvanced TaskCancelled TaskCompleted TaskFailed TaskRescued TaskRetried",
    "onerow.engine.queue.lease": "Leased",
    "onerow.engine.queue.puller": "Puller",
    "onerow.engine.worker": "Worker",
    "onerow.wiring": "Queue",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'onerow' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
