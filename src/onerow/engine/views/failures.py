"""Failures grouped by cause: error class, exception, and location in the user's code."""

from datetime import datetime

import msgspec

from onerow.core.corruption import shown
from onerow.core.history import Entry
from onerow.core.task import Task


class FailureGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that failed with the same cause."""

    error_class: str
    exception: str
    where: str
    pipeline: str
    phase: str
    count: int
    first_at: datetime
    last_at: datetime
    error: str  # of the latest failure
    task_ids: list[str]  # examples, latest first

    @property
    def tasks_query(self) -> str:
        """The query of its tasks, as far as the query language can say it."""
        return f"status:failed pipeline:{self.pipeline} phase:{self.phase} error:{self.error_class}"


class Failures(msgspec.Struct, frozen=True):
    """Groups, largest first, of the latest `looked_at` failures; `all`: whether there are no others."""

    groups: list[FailureGroup]
    looked_at: int
    all: bool


_EXAMPLES = 5


def group_failures(tasks: list[Task], complete: bool) -> Failures:
    """Group failed tasks, given latest first, by cause."""
    found: dict[tuple[str, ...], list[Task]] = {}
    for task in tasks:
        entry = last_failure(task)
        cause = (
            task.pipeline,
            task.phase,
            task.error_class or "unknown",
            entry.exception if entry else "",
            entry.where if entry else "",
        )
        found.setdefault(cause, []).append(task)
    groups = [
        FailureGroup(
            pipeline=pipeline,
            phase=phase,
            error_class=error_class,
            exception=exception,
            where=where,
            count=len(group),
            first_at=group[-1].completed_at or group[-1].updated_at,
            last_at=group[0].completed_at or group[0].updated_at,
            error=group[0].error or "",
            task_ids=[task.task_id for task in group[:_EXAMPLES]],
        )
        for (pipeline, phase, error_class, exception, where), group in found.items()
    ]
    groups.sort(key=lambda group: (-group.count, group.pipeline, group.phase, group.error_class, group.where))
    return Failures(groups, len(tasks), complete)


def last_failure(task: Task) -> Entry | None:
    """Return the history entry of the task's latest failure."""
    return next((entry for entry in reversed(shown(task, "history")) if entry.error_class), None)
