"""The ends of a task: the one that its row shows, and earlier ones that a retry or a replay has undone."""

from collections.abc import Iterator
from datetime import datetime

import msgspec

from onerow.core.history import Entry
from onerow.core.status import COMPLETED, FAILED, Status
from onerow.core.task import Task

_REOPENING = ("retry", "replay")
_DONE = ("completed", "finish", "passed", "skipped")


class End(msgspec.Struct, frozen=True):
    """A task ended. reopened_at: when it was put back to work; None: it is still ended."""

    status: Status
    phase: str
    at: datetime
    error: str = ""
    error_class: str = ""
    reopened_at: datetime | None = None


def ends_of(task: Task) -> Iterator[End]:
    """Yield the ends that the history shows, oldest first, and the present one last."""
    before: Entry | None = None
    reopened = any(f'"{what}"' in task.logs_json for what in _REOPENING)  # most histories need not be decoded
    for entry in task.history if reopened else ():
        if entry.what in _REOPENING and before is not None and before.what != "dropped":
            status = COMPLETED if before.what in _DONE else FAILED
            yield End(status, before.phase, before.when, before.error, before.error_class, entry.when)
        before = entry
    if task.ended and task.completed_at is not None:
        yield End(task.status, task.phase, task.completed_at, task.error or "", task.error_class or "")


def may_be_unseen(end: End, gaps: list[tuple[datetime, datetime]], margin: float) -> bool:
    """Whether a reader that looks every few seconds, except in the gaps, may have missed an end that was undone.

    margin: seconds within which every end is seen outside of gaps.
    """
    if end.reopened_at is None:
        return True
    if (end.reopened_at - end.at).total_seconds() <= margin:
        return True
    return any(since <= end.reopened_at and end.at <= until for since, until in gaps)
