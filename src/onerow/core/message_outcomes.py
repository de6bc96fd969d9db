"""What became of a message and the work that it asked for."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from onerow.core.status import COMPLETED, FAILED, PROCESSING, WAITING
from onerow.core.task import Task


class Outcome(StrEnum):
    """The outcome of one delivery of a message.

    ok: the work is done. skip:cancel: the task was cancelled. skip:claim: the message was acknowledged, and nothing is
    left to claim, because another worker has the task or it has failed. failed: the work has failed. Only if messages
    are acknowledged after the work: skip:mark_processing: the task does not wait for a worker. lock_fail: another
    worker has a live lease on it.
    """

    OK = "ok"
    SKIP_CANCEL = "skip:cancel"
    SKIP_CLAIM = "skip:claim"
    FAILED = "failed"
    SKIP_MARK_PROCESSING = "skip:mark_processing"
    LOCK_FAIL = "lock_fail"


def outcome_of_work(tasks: Sequence[Task]) -> Outcome | None:
    """Return the outcome of a message whose tasks have ended; None while one has not."""
    if not all(task.ended for task in tasks):
        return None
    statuses = {task.status for task in tasks}
    if FAILED in statuses:
        return Outcome.FAILED
    return Outcome.OK if COMPLETED in statuses or not statuses else Outcome.SKIP_CANCEL


def outcome_at_receipt(tasks: Sequence[Task], *, after_work: bool, worker: str, now: datetime) -> Outcome | None:
    """Return the outcome of a message whose tasks need no worker any more; None if one waits or runs in `worker`.

    after_work: the message is acknowledged after the work, not as soon as its row is stored.
    """
    outcome = outcome_of_work(tasks)
    if outcome is Outcome.FAILED:
        return Outcome.SKIP_MARK_PROCESSING if after_work else Outcome.SKIP_CLAIM
    if outcome is not None:
        return outcome
    if any(task.status is WAITING for task in tasks):
        return None
    running = [task for task in tasks if task.status is PROCESSING]
    if any(task.leased_by == worker for task in running):
        return None
    if not after_work:
        return Outcome.SKIP_CLAIM
    live = any(task.leased_until is not None and task.leased_until > now for task in running)
    return Outcome.LOCK_FAIL if live else Outcome.SKIP_MARK_PROCESSING
