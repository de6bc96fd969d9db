"""A durable task queue for multi-phase work in your own database: one task is one row from first phase to last."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onerow.core.addition import Addition, AddManyOptions, AddOptions, ChildOptions
    from onerow.core.errors import (
        BadInput,
        BadPayload,
        BadQuery,
        IllegalMove,
        KeyTaken,
        LeaseLost,
        OnerowError,
        PipelineError,
        ResourceError,
        RetryTransaction,
        StoreError,
        StoreUnavailable,
        UnknownName,
        WaitTimeout,
    )
    from onerow.core.filters import Filter
    from onerow.core.history import Entry
    from onerow.core.labels import Labels, Tab
    from onerow.core.outcomes import (
        Cancelled,
        CancelTask,
        ChildrenFailed,
        Finish,
        Jump,
        Permanent,
        RateLimited,
        SkipPhase,
        Snooze,
        WaitExpired,
    )
    from onerow.core.retry import Retry
    from onerow.core.schedule import Cron
    from onerow.core.status import Status
    from onerow.core.task import Task
    from onerow.engine.control.alerts import Alert, Webhook
    from onerow.engine.control.definitions import Pause
    from onerow.engine.control.schedules import Scheduled
    from onerow.engine.events.events import (
        MessageHandled,
        TaskAdded,
        TaskAdvanced,
        TaskCancelled,
        TaskCompleted,
        TaskFailed,
        TaskRescued,
        TaskRetried,
    )
    from onerow.engine.handler.batch import Item
    from onerow.engine.handler.checkpoints import Child, ChildCounts
    from onerow.engine.handler.context import AsyncContext, Context
    from onerow.engine.queue.bulk import Selection
    from onerow.engine.queue.lease import Leased, Leases
    from onerow.engine.queue.progress import BulkOptions, Progress
    from onerow.engine.queue.puller import Puller
    from onerow.engine.queue.schedules import Crons
    from onerow.engine.queue.task_log import LogGap
    from onerow.engine.worker import Worker
    from onerow.pipelines.options import RunOptions
    from onerow.pipelines.pipeline import Pipeline
    from onerow.pipelines.typed import Signal
    from onerow.ports import LogLine, LogPage, Page, TaskCount
    from onerow.wiring import Queue

__version__ = "0.1.0"

__all__ = [
    "AddManyOptions",
    "AddOptions",
    "Addition",
    "Alert",
    "AsyncContext",
    "BadInput",
    "BadPayload",
    "BadQuery",
    "BulkOptions",
    "CancelTask",
    "Cancelled",
    "Child",
    "ChildCounts",
    "ChildOptions",
    "ChildrenFailed",
    "Context",
    "Cron",
    "Crons",
    "Entry",
    "Filter",
    "Finish",
    "IllegalMove",
    "Item",
    "Jump",
    "KeyTaken",
    "Labels",
    "LeaseLost",
    "Leased",
    "Leases",
    "LogGap",
    "LogLine",
    "LogPage",
    "MessageHandled",
    "OnerowError",
    "Page",
    "Pause",
    "Permanent",
    "Pipeline",
    "PipelineError",
    "Progress",
    "Puller",
    "Queue",
    "RateLimited",
    "ResourceError",
    "Retry",
    "RetryTransaction",
    "RunOptions",
    "Scheduled",
    "Selection",
    "Signal",
    "SkipPhase",
    "Snooze",
    "Status",
    "StoreError",
    "StoreUnavailable",
    "Tab",
    "Task",
    "TaskAdded",
    "TaskAdvanced",
    "TaskCancelled",
    "TaskCompleted",
    "TaskCount",
    "TaskFailed",
    "TaskRescued",
    "TaskRetried",
    "UnknownName",
    "WaitExpired",
    "WaitTimeout",
    "Webhook",
    "Worker",
    "__version__",
]

# Each name is imported at its first use, so that `onerow --help` doesn't wait for the engine.
_HOMES = {
    "onerow.core.addition": "Addition AddManyOptions AddOptions ChildOptions",
    "onerow.core.errors": "BadInput BadPayload BadQuery IllegalMove KeyTaken LeaseLost OnerowError "
    "PipelineError ResourceError RetryTransaction StoreError StoreUnavailable UnknownName WaitTimeout",
    "onerow.core.filters": "Filter",
    "onerow.core.history": "Entry",
    "onerow.core.labels": "Labels Tab",
    "onerow.core.outcomes": "CancelTask Cancelled ChildrenFailed Finish Jump "
    "Permanent RateLimited SkipPhase Snooze WaitExpired",
    "onerow.core.retry": "Retry",
    "onerow.core.schedule": "Cron",
    "onerow.core.status": "Status",
    "onerow.core.task": "Task",
    "onerow.engine.control.alerts": "Alert Webhook",
    "onerow.engine.control.definitions": "Pause",
    "onerow.engine.control.schedules": "Scheduled",
    "onerow.engine.events.events": "MessageHandled TaskAdded TaskAdvanced TaskCancelled "
    "TaskCompleted TaskFailed TaskRescued TaskRetried",
    "onerow.engine.handler.batch": "Item",
    "onerow.engine.handler.checkpoints": "Child ChildCounts",
    "onerow.engine.handler.context": "AsyncContext Context",
    "onerow.engine.queue.bulk": "Selection",
    "onerow.engine.queue.lease": "Leased Leases",
    "onerow.engine.queue.progress": "BulkOptions Progress",
    "onerow.engine.queue.puller": "Puller",
    "onerow.engine.queue.schedules": "Crons",
    "onerow.engine.queue.task_log": "LogGap",
    "onerow.engine.worker": "Worker",
    "onerow.pipelines.options": "RunOptions",
    "onerow.pipelines.pipeline": "Pipeline",
    "onerow.pipelines.typed": "Signal",
    "onerow.ports": "LogLine LogPage Page TaskCount",
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
