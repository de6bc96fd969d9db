"""Durable multi-phase work in the database you already have: one task, one row, from its first phase to its last."""

from onerow.core.errors import (
    BadInput,
    BadPayload,
    IllegalMove,
    KeyTaken,
    LeaseLost,
    OnerowError,
    PipelineError,
    RetryTransaction,
    StoreError,
    StoreUnavailable,
    UnknownName,
)
from onerow.core.outcomes import Cancelled, ChildrenFailed, Finish, Jump, Permanent, RateLimited, Snooze, WaitExpired
from onerow.core.pipeline import Pipeline
from onerow.core.retry import Retry
from onerow.core.status import Status
from onerow.core.task import Task
from onerow.engine.adding import Addition
from onerow.engine.context import Context
from onerow.engine.events import (
    TaskAdded,
    TaskAdvanced,
    TaskCancelled,
    TaskCompleted,
    TaskFailed,
    TaskRescued,
    TaskRetried,
)
from onerow.engine.worker import Worker
from onerow.ports import Filter
from onerow.wiring import Queue

__version__ = "0.1.0"

__all__ = [
    "Addition",
    "BadInput",
    "BadPayload",
    "Cancelled",
    "ChildrenFailed",
    "Context",
    "Filter",
    "Finish",
    "IllegalMove",
    "Jump",
    "KeyTaken",
    "LeaseLost",
    "OnerowError",
    "Permanent",
    "Pipeline",
    "PipelineError",
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
    "Worker",
    "__version__",
]
