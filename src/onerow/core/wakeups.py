"""Wake-ups: which transitions of a task give workers something to do.

A wake-up goes to every worker of the store, since any of them may serve the phase. A store calls `wakes` for each task
that it writes, and wakes the workers of all processes if one call returns True. A store may wake too often, never too
rarely. A quarantine always wakes: the row can't be compared with what it was. Heartbeats, claims, output and notes
wake no worker.
"""

from datetime import datetime

from onerow.core.status import WAITING
from onerow.core.task import Task


def wakes(before: Task | None, after: Task) -> bool:
    """Whether the transition wakes the workers; `before` is None for a new task.

    It does if the task becomes due or enters another phase, if it frees a slot of its phase or key, if a cancel of the
    running task is requested, or if it ends and has a parent, which may wait for it.
    """
    now = after.updated_at
    if before is None:
        return _is_due(after, now)
    return (
        (_is_due(after, now) and not (_is_due(before, now) and before.phase == after.phase))
        or (before.slot is not None and after.slot is None)
        or (before.key_slot is not None and after.key_slot is None)
        or (after.cancel_requested and not before.cancel_requested)
        or (after.parent_id is not None and after.ended and not before.ended)
    )


def _is_due(task: Task, now: datetime) -> bool:
    return task.status is WAITING and task.awaiting is None and task.run_at <= now
