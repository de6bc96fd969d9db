"""Rules that the worker's sweeps apply: pass due waits, expire old ones, purge old tasks."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from onerow.core import signals, values
from onerow.core.corruption import shown
from onerow.core.errors import IllegalMove
from onerow.core.history import Entry
from onerow.core.plan import Plan
from onerow.core.rules.transitions import ended, entered, must_be
from onerow.core.status import CANCELLED, COMPLETED, ENDS, FAILED, OPEN, WAITING, Status
from onerow.core.steps import expired as expired_steps
from onerow.core.steps import renamed as renamed_steps
from onerow.core.steps import sleeps_until
from onerow.core.task import Task
from onerow.core.times import spell

_encode = msgspec.json.Encoder().encode


def pass_(task: Task, plan: Plan, now: datetime) -> Task:
    """Move a due task from a phase without code to the next phase; a received signal becomes the phase's result."""
    must_be(task, WAITING)
    phase = plan.phase(task.phase)
    if phase.has_code or task.awaiting is not None:
        raise IllegalMove(f"task {task.task_id} can't pass {task.phase}: it has code to run", task_id=task.task_id)
    if task.run_at > now:
        raise IllegalMove(f"task {task.task_id} is not due before {spell(task.run_at)}", task_id=task.task_id)
    changes: dict[str, Any] = {}
    results = task.results_json
    if phase.kind == "wait_for":
        taken = signals.take(task.signals_json, phase.signal, now)
        if taken is not None:
            results = values.with_key(results, task.phase, taken[0])
            changes["signals_json"] = taken[1]
    next_phase = plan.after(task.phase)
    entry = Entry(at=spell(now), what="passed", phase=task.phase)
    changes |= {"results_json": results, "logs_json": task.history_with(entry)}
    if next_phase is None:
        return ended(task, COMPLETED, now, **changes)
    return entered(task, next_phase, now, **changes)


def expire(task: Task, plan: Plan | None, now: datetime) -> Task:
    """Resume a parked task past its deadline in its handler or `on_timeout` phase, else fail it with class timeout."""
    must_be(task, WAITING)
    if task.awaiting is None or task.run_at > now:
        raise IllegalMove(f"task {task.task_id} has not expired", task_id=task.task_id)
    what = task.awaiting.removeprefix("signal:")
    entry = Entry(at=spell(now), what="expired", phase=task.phase, error_class="timeout", note=task.awaiting)
    phase = plan.phase(task.phase) if plan is not None and plan.knows(task.phase) else None
    if plan is not None and phase is not None and not phase.has_code and phase.on_timeout:
        target = plan.phase(phase.on_timeout)
        return entered(task, target, now, logs_json=task.history_with(entry))
    if phase is not None and phase.has_code:
        # The task waits inside a handler; the next attempt raises WaitExpired at that wait.
        return task.with_changes(
            now, awaiting=None, run_at=now, steps_json=expired_steps(task, now), logs_json=task.history_with(entry)
        )
    missing = "the children had not ended" if what == "children" else f"no signal {what!r} was received"
    message = f"{missing} in {task.phase} before {spell(task.run_at)}"
    return ended(
        task, FAILED, now, awaiting=None, error=message, error_class="timeout", logs_json=task.history_with(entry)
    )


def children_ended(task: Task, counts: Mapping[Status, int]) -> bool:
    """Whether a parent may continue: no child is open, and at least the expected number of children has ended."""
    ends = sum(counts.get(status, 0) for status in ENDS)
    return ends >= (task.children or 0) and not any(counts.get(status, 0) for status in OPEN)


def gather(task: Task, plan: Plan, ends: Mapping[Status, int], now: datetime) -> Task:
    """Resume a parked parent whose children have all ended: run its handler, or pass its phase without code."""
    must_be(task, WAITING)
    if task.awaiting != "children":
        raise IllegalMove(f"task {task.task_id} doesn't wait for children", task_id=task.task_id)
    if not children_ended(task, ends):
        raise IllegalMove(f"not all children of task {task.task_id} have ended", task_id=task.task_id)
    phase = plan.phase(task.phase)
    if phase.has_code:
        return task.with_changes(now, awaiting=None, run_at=now)
    total = sum(ends.values())
    counted = {"total": total, **{end.value: ends.get(end, 0) for end in (COMPLETED, FAILED, CANCELLED)}}
    not_completed = total - counted["completed"]
    entry = Entry(at=spell(now), what="passed", phase=task.phase, note=f"{total} children ended, {not_completed} badly")
    logs = task.history_with(entry)
    if phase.all_must_succeed and not_completed:
        message = f"{not_completed} of {total} children of {task.phase} did not complete"
        return ended(task, FAILED, now, awaiting=None, error=message, error_class="permanent", logs_json=logs)
    results = values.with_key(task.results_json, task.phase, _encode(counted).decode())
    next_phase = plan.after(task.phase)
    if next_phase is None:
        return ended(task, COMPLETED, now, awaiting=None, results_json=results, logs_json=logs)
    return entered(task, next_phase, now, results_json=results, logs_json=logs)


def rename(task: Task, plan: Plan, now: datetime) -> Task:
    """Change the former phase name of a waiting task, and of its records, to the present one.

    If the renamed phase waits for another signal, so does the task, until the same deadline; if that signal was
    received already, the task is due.
    """
    must_be(task, WAITING)
    phase = plan.phase(task.phase)
    changes: dict[str, Any] = {"phase": phase.name, "steps_json": renamed_steps(task, phase.name)}
    if phase.kind == "wait_for" and task.awaiting is not None and task.awaiting != f"signal:{phase.signal}":
        changes["awaiting"] = f"signal:{phase.signal}"
        if signals.has(task.signals_json, phase.signal):
            changes |= {"awaiting": None, "run_at": now}
    return task.with_changes(now, **changes)


_CHOSE_ITS_TIME = ("snoozed", "sleeping", "handed back", "parked", "retry", "replay", "reschedule")


def was_put_off(task: Task, now: datetime) -> bool:
    """Whether a rate per key put the task off: nothing else explains why it is not due."""
    if task.status is not WAITING or task.awaiting is not None or task.run_at <= now or not task.limit_key:
        return False
    if (
        task.error is not None
        or task.rescue_count
        or task.scheduled_time == task.run_at
        or sleeps_until(task) is not None
    ):
        return False
    last = shown(task, "history")[-1:]
    return not last or last[0].what not in _CHOSE_ITS_TIME


def release(task: Task, now: datetime) -> Task:
    """Make a task due that a rate had put off; the rate in force decides again when it is claimed."""
    must_be(task, WAITING)
    return task.with_changes(now, run_at=now)


def release_key(task: Task, now: datetime) -> Task:
    """Release the unique key of an ended task after its `unique_for` has passed."""
    if not task.ended or task.held_until is None or task.held_until > now:
        raise IllegalMove(f"task {task.task_id} still holds its key", task_id=task.task_id)
    # A tombstone keeps held_until, because the purge selects tombstones by it.
    return task.with_changes(now, held_key=None, held_until=None if task.purged_at is None else task.held_until)


def bury(task: Task, now: datetime) -> Task:
    """Turn an ended task into a tombstone: clear its data and history; it still holds its id and unique key."""
    if not task.ended:
        raise IllegalMove(f"task {task.task_id} has not ended", task_id=task.task_id, status=task.status)
    return task.with_changes(
        now, purged_at=now, title="", error=None, payload_json="null", results_json="{}", steps_json="{}",
        signals_json="[]", progress_json="null", metadata_json="{}", logs_json="[]",
    )  # fmt: skip
