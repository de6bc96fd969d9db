"""Outcomes that a handler chooses for its own task: cancel it, skip the phase, snooze, sleep."""

from datetime import datetime, timedelta

from onerow.core.plan import Plan
from onerow.core.rules.transitions import attempted, cancelled_by_request, elapsed_ms, ended, entered, must_be
from onerow.core.status import CANCELLED, COMPLETED, PROCESSING, WAITING
from onerow.core.steps import Record, with_record
from onerow.core.task import Task
from onerow.core.times import spell, to_millis


def cancel_itself(task: Task, reason: str, now: datetime, *, by: str = "") -> Task:
    """Cancel the task with the reason that its handler gave (CancelTask)."""
    must_be(task, PROCESSING)
    logs = task.history_with(attempted(task, now, "cancelled", by, note=reason))
    return ended(task, CANCELLED, now, elapsed_time=elapsed_ms(task, now), logs_json=logs)


def skip(task: Task, plan: Plan, reason: str, now: datetime, *, by: str = "") -> Task:
    """Leave the phase without a result (SkipPhase): enter the next phase, or complete the task after the last."""
    must_be(task, PROCESSING)
    next_phase = plan.after(task.phase)
    elapsed = elapsed_ms(task, now)
    logs = task.history_with(attempted(task, now, "skipped", by, note=reason))
    if task.cancel_requested:
        return ended(task, CANCELLED, now, elapsed_time=elapsed, logs_json=logs)
    if next_phase is None:
        return ended(task, COMPLETED, now, elapsed_time=elapsed, logs_json=logs)
    return entered(task, next_phase, now, elapsed_time=elapsed, logs_json=logs)


def snooze(task: Task, for_: timedelta, now: datetime, *, by: str = "") -> Task:
    """Return the task to waiting until a later time, at no cost of retries."""
    must_be(task, PROCESSING)
    if task.cancel_requested:
        return cancelled_by_request(task, now, by)
    entry = attempted(task, now, "snoozed", by)
    due = to_millis(now + for_)
    return task.to(WAITING, now, run_at=due, started_at=None, rescue_count=0, logs_json=task.history_with(entry))


def sleep(task: Task, name: str, for_: timedelta, now: datetime, *, by: str = "") -> Task:
    """Let the task wait without a slot and at no cost of retries; its next attempt finds the sleep recorded as over."""
    must_be(task, PROCESSING)
    if task.cancel_requested:
        return cancelled_by_request(task, now, by)
    until = to_millis(now + for_)
    steps = with_record(task, name, Record(at=spell(now), until=spell(until)))
    logs = task.history_with(attempted(task, now, "sleeping", by, note=f"until {spell(until)}"))
    return task.to(WAITING, now, run_at=until, started_at=None, rescue_count=0, steps_json=steps, logs_json=logs)
