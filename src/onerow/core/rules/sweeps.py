"""Moves that nobody asked for in particular: what is due passes, what waited too long expires, what is old goes."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from onerow.core import signals, values
from onerow.core.errors import IllegalMove
from onerow.core.history import Entry
from onerow.core.plan import Plan
from onerow.core.rules.transitions import ended, entered, must_be
from onerow.core.status import CANCELLED, COMPLETED, ENDS, FAILED, OPEN, WAITING, Status
from onerow.core.steps import expired as expired_steps
from onerow.core.task import Task
from onerow.core.times import spell

_encode = msgspec.json.Encoder().encode


def pass_(task: Task, plan: Plan, now: datetime) -> Task:
    """A due task at a phase without code goes on to the next; a signal that let it pass is its result."""
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
    """A parked task past its deadline: on to its `on_timeout` phase, else failed with class timeout."""
    must_be(task, WAITING)
    if task.awaiting is None or task.run_at > now:
        raise IllegalMove(f"task {task.task_id} has not expired", task_id=task.task_id)
    what = task.awaiting.removeprefix("signal:")
    entry = Entry(at=spell(now), what="expired", phase=task.phase, error_class="timeout", note=task.awaiting)
    phase = plan.phase(task.phase) if plan is not None and plan.knows(task.phase) else None
    if plan is not None and phase is not None and not phase.has_code and phase.on_timeout:
        on = plan.phase(phase.on_timeout)
        return entered(task, on, now, logs_json=task.history_with(entry))
    if phase is not None and phase.has_code:
        # It waits inside a handler, which is told where it waited.
        return task.with_changes(
            now, awaiting=None, run_at=now, steps_json=expired_steps(task, now), logs_json=task.history_with(entry)
        )
    lacked = "the children had not ended" if what == "children" else f"nobody signalled {what!r}"
    message = f"{lacked} in {task.phase} before {spell(task.run_at)}"
    return ended(
        task, FAILED, now, awaiting=None, error=message, error_class="timeout", logs_json=task.history_with(entry)
    )


def children_ended(task: Task, counts: Mapping[Status, int]) -> bool:
    """Whether a parent may go on: none of its children is open, and at least as many have ended as it expects."""
    ends = sum(counts.get(status, 0) for status in ENDS)
    return ends >= (task.children or 0) and not any(counts.get(status, 0) for status in OPEN)


def gather(task: Task, plan: Plan, ends: Mapping[Status, int], now: datetime) -> Task:
    """Every child of a parked parent has ended: its handler may go on, or its phase without code passes."""
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
    lacking = total - counted["completed"]
    entry = Entry(at=spell(now), what="passed", phase=task.phase, note=f"{total} children ended, {lacking} badly")
    logs = task.history_with(entry)
    if phase.all_must_succeed and lacking:
        message = f"{lacking} of {total} children of {task.phase} did not complete"
        return ended(task, FAILED, now, awaiting=None, error=message, error_class="permanent", logs_json=logs)
    results = values.with_key(task.results_json, task.phase, _encode(counted).decode())
    next_phase = plan.after(task.phase)
    if next_phase is None:
        return ended(task, COMPLETED, now, awaiting=None, results_json=results, logs_json=logs)
    return entered(task, next_phase, now, results_json=results, logs_json=logs)


def rename(task: Task, plan: Plan, now: datetime) -> Task:
    """A waiting task at a phase's former name stands at its present one."""
    must_be(task, WAITING)
    return task.with_changes(now, phase=plan.phase(task.phase).name)


def release_key(task: Task, now: datetime) -> Task:
    """A remembered unique key whose time is over is free again."""
    if not task.ended or task.held_until is None or task.held_until > now:
        raise IllegalMove(f"task {task.task_id} still holds its key", task_id=task.task_id)
    # A tombstone keeps the date, by which the next purge finds it.
    return task.with_changes(now, held_key=None, held_until=None if task.purged_at is None else task.held_until)


def bury(task: Task, now: datetime) -> Task:
    """A tombstone: an ended task emptied to its keys, which go on being held."""
    if not task.ended:
        raise IllegalMove(f"task {task.task_id} has not ended", task_id=task.task_id, status=task.status)
    return task.with_changes(
        now, purged_at=now, title="", error=None, payload_json="null", results_json="{}", steps_json="{}",
        signals_json="[]", progress_json="null", metadata_json="{}", logs_json="[]",
    )  # fmt: skip
