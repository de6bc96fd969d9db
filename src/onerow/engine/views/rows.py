"""Rows of task lists, and pages of search results."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from onerow.core.corruption import shown
from onerow.core.filters import text_at
from onerow.core.labels import PATHS
from onerow.core.status import Status
from onerow.core.task import Task


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One task in a list."""

    task_id: str
    pipeline: str
    phase: str
    status: Status
    parked: bool
    title: str
    user_id: str
    created_at: datetime
    run_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    attempt: int
    retry_count: int
    max_retries: int
    priority: int
    awaiting: str | None
    error: str | None
    error_class: str | None
    leased_by: str | None
    progress: Any

    @classmethod
    def of(cls, task: Task) -> "Row":
        return cls(**{field: shown(task, field) for field in cls.__struct_fields__})


class TaskTable(msgspec.Struct, frozen=True):
    """One page of tasks with chosen columns."""

    columns: list[str]
    cells: list[list[Any]]  # a row of values for each task of the page; None: the task has no such value
    page: "TaskPage"


def cell(task: Task, column: str, masked: Callable[[Any], Any]) -> Any:
    """Return the masked value of a column: a field of the task, or a value in its payload, results or metadata."""
    head, _, path = column.partition(".")
    if head in PATHS and path:
        return text_at(masked(shown(task, head)), path)  # masked as a whole, because names of fields count
    return masked(shown(task, column))


class TaskPage(msgspec.Struct, frozen=True):
    """One page of tasks, the cursor of the next page, and how far a search came if its time ran out."""

    tasks: list[Row]
    next: str | None = None
    looked_back_to: datetime | None = None
    looked_at: int = 0
