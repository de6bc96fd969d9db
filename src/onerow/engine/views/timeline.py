"""One task: its columns, its timeline, and the reason for its current state."""

from datetime import datetime, timedelta
from typing import Any

import msgspec

from onerow.core.corruption import shown
from onerow.core.plan import Plan
from onerow.core.status import PROCESSING
from onerow.core.task import FIELDS, Task
from onerow.engine.views.why import Reason


class Moment(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An event at `at`, or a period from `began_at` to `at`."""

    at: datetime
    what: str
    phase: str = ""
    attempt: int = 0
    began_at: datetime | None = None
    ms: int | None = None
    by: str = ""
    error: str = ""
    error_class: str = ""
    where: str = ""
    note: str = ""


class TaskView(msgspec.Struct, frozen=True):
    """Everything about one task."""

    task: dict[str, Any]  # every column, JSON decoded
    phases: list[str]  # of its pipeline, in order
    timeline: list[Moment]
    why: Reason


def columns(task: Task) -> dict[str, Any]:
    """Return all columns except the history by field name, with JSON decoded."""
    return {name.removesuffix("_json"): shown(task, name.removesuffix("_json")) for name in FIELDS if name != "logs_json"}  # fmt: skip


def timeline(task: Task, now: datetime) -> list[Moment]:
    """Return the events of a task, oldest first, from its addition to the running attempt."""
    moments = [Moment(at=task.created_at, what="added")]
    for entry in shown(task, "history"):
        at = entry.when
        began_at = None if entry.ms is None else at - timedelta(milliseconds=entry.ms)
        moments.append(
            Moment(
                at=at, what=entry.what, phase=entry.phase, attempt=entry.attempt, began_at=began_at, ms=entry.ms,
                by=entry.by, error=entry.error, error_class=entry.error_class, where=entry.where, note=entry.note,
            )
        )  # fmt: skip
    if task.status is PROCESSING and task.started_at is not None:
        ms = max(0, int((now - task.started_at).total_seconds() * 1000))
        moments.append(
            Moment(
                at=now, what="running", phase=task.phase, attempt=task.attempt, began_at=task.started_at, ms=ms,
                by=task.leased_by or "",
            )
        )  # fmt: skip
    return moments


def view_task(task: Task, plan: Plan | None, reason: Reason, now: datetime) -> TaskView:
    phases = [task.phase] if plan is None else [phase.name for phase in plan.phases]
    return TaskView(columns(task), phases, timeline(task, now), reason)
