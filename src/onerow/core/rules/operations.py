"""Rules for operations by users and programs; each is recorded in the history with its author."""

from datetime import datetime, timedelta
from typing import Any

import msgspec

from onerow.core import signals, values
from onerow.core.corruption import must_be_readable
from onerow.core.errors import BadInput, IllegalMove
from onerow.core.failure import Failure, failure
from onerow.core.history import Entry
from onerow.core.plan import Plan
from onerow.core.retry import Retry
from onerow.core.rules.transitions import check_priority, check_retry_count, check_row, ended, entered, must_be
from onerow.core.signals import MAX_SIGNALS
from onerow.core.status import CANCELLED, COMPLETED, FAILED, PROCESSING, WAITING
from onerow.core.steps import has_spawned, renamed, without_open_waits
from onerow.core.task import Task
from onerow.core.times import spell, to_millis
from onerow.core.trace_context import CARRIED


def signal(task: Task, name: str, payload: str, signal_id: str, now: datetime, *, by: str = "") -> Task:
    """Store a signal in an open task; a task parked for it becomes due, otherwise the next matching wait takes it."""
    if task.ended:
        raise IllegalMove(
            f"task {task.task_id} is {task.status}; a signal reaches only tasks that have not ended",
            task_id=task.task_id,
            status=task.status,
        )
    if signals.knows(task.signals_json, signal_id):
        return task  # a second delivery, possibly after the first one was taken
    if len(signals.kept(task.signals_json)) >= MAX_SIGNALS:
        raise BadInput(
            f"task {task.task_id} already keeps {MAX_SIGNALS} signals that nothing waits for", field="signal"
        )
    kept = signals.keep(task.signals_json, name, payload, signal_id, now)
    logs = task.history_with(Entry(at=spell(now), what="signal", phase=task.phase, by=by, note=name))
    if task.awaiting == f"signal:{name}":
        return task.with_changes(now, signals_json=kept, awaiting=None, run_at=now, logs_json=logs)
    return task.with_changes(now, signals_json=kept, logs_json=logs)


def cancel(task: Task, now: datetime, *, by: str = "", note: str = "") -> Task:
    """Cancel a waiting or failed task at once; ask a running task to stop, which cancels it when its handler ends."""
    entry = Entry(at=spell(now), what="cancel", phase=task.phase, by=by, note=note)
    if task.status is PROCESSING:
        if task.cancel_requested:
            return task
        return task.with_changes(now, cancel_requested=True, logs_json=task.history_with(entry))
    must_be(task, WAITING, FAILED, operation="cancelled")
    return ended(task, CANCELLED, now, awaiting=None, logs_json=task.history_with(entry))


def fail_by_hand(task: Task, why: Failure, now: datetime, *, by: str = "", note: str = "") -> Task:
    """Fail a waiting task at its phase with the user's reason, for example because its signal will never be sent."""
    must_be(task, WAITING, operation="failed by hand")
    entry = Entry(
        at=spell(now), what="fail", phase=task.phase, by=by, note=note, error=why.message, error_class=why.error_class
    )
    changes = {"error": why.message, "error_class": why.error_class, "logs_json": task.history_with(entry)}
    return ended(task, FAILED, now, awaiting=None, **changes)


def retry(
    task: Task,
    plan: Plan,
    now: datetime,
    *,
    by: str = "",
    note: str = "",
    policy: Retry | None = None,
    retry_count: int | None = None,
) -> Task:
    """Return a failed task to waiting at its phase with a new retry budget; open waits of its handler start over."""
    fix = f"to run it again from its first phase: onerow replay {task.task_id}" if task.status is COMPLETED else ""
    must_be(task, FAILED, operation="retried", fix=fix)
    must_be_readable(task)
    wait = timedelta(0) if policy is None else _allowed_by(policy, task)
    count = task.retry_count + 1 if retry_count is None else check_retry_count(retry_count)
    entry = Entry(at=spell(now), what="retry", phase=task.phase, by=by, note=note)
    phase = plan.phase(task.phase)
    task = msgspec.structs.replace(task, steps_json=without_open_waits(task))
    again = entered(
        task,
        phase,
        now,
        fresh=False,
        retry_count=count,
        retry_base=count,
        # Children of an ended task may have been purged, so the task now expects only those that still exist.
        children=None if task.children is None else 0,
        steps_json=renamed(task, phase.name),
        logs_json=task.history_with(entry),
    )
    return msgspec.structs.replace(again, run_at=to_millis(now + wait)) if wait and again.awaiting is None else again


def _allowed_by(policy: Retry, task: Task) -> timedelta:
    """Return the policy's delay before the next retry; raise IllegalMove if the policy allows none."""
    wait = policy.after(failure(task.error or "", task.error_class or "unknown"), task.retry_count, task.task_id)
    if wait is not None and task.retry_count < policy.max_retries:
        return wait
    why = f"class {task.error_class}" if wait is None else f"retried {task.retry_count} times"
    raise IllegalMove(
        f"task {task.task_id} is not to be tried again by itself ({why})",
        fix=f"to insist: onerow retry {task.task_id}",
        task_id=task.task_id,
        status=task.status,
    )


def replay(task: Task, plan: Plan, phase: str | None, now: datetime, *, by: str = "", note: str = "") -> Task:
    """Run an ended task again from a phase (default: the first); results and steps from that phase on are cleared."""
    must_be(task, COMPLETED, FAILED, operation="replayed")
    must_be_readable(task)
    start = plan.first if phase is None else plan.phase(phase)
    if plan.knows(task.phase) and plan.position(start.name) > plan.position(task.phase):
        raise IllegalMove(
            f"task {task.task_id} never reached {start.name}",
            fix=f"replay it from {task.phase} or before",
            task_id=task.task_id,
            status=task.status,
        )
    cleared = plan.names_from(start.name)
    left = values.without_keys(task.steps_json, cleared)
    entry = Entry(at=spell(now), what="replay", phase=start.name, by=by, note=note)
    return entered(
        task,
        start,
        now,
        generation=task.generation + 1,
        results_json=values.without_keys(task.results_json, cleared),
        steps_json=left,
        children=0 if has_spawned(left) else None,  # see retry
        logs_json=task.history_with(entry),
    )


def finish_by_hand(
    task: Task,
    plan: Plan,
    now: datetime,
    *,
    by: str = "",
    note: str = "",
    phase_only: bool = False,
    result: str = "null",
) -> Task:
    """Complete the task by hand, or with `phase_only` only its phase, so that it waits for the next one."""
    must_be(task, WAITING, FAILED, operation="finished by hand")
    entry = Entry(at=spell(now), what="finish", phase=task.phase, by=by, note=note)
    changes: dict[str, Any] = {"logs_json": task.history_with(entry)}
    if result != "null":
        changes["results_json"] = values.with_key(task.results_json, task.phase, result)
        check_row(task, changes["results_json"])
    next_phase = plan.after(task.phase) if phase_only else None
    if next_phase is None:
        return ended(task, COMPLETED, now, awaiting=None, error=None, error_class=None, **changes)
    return entered(task, next_phase, now, **changes)


def reschedule(task: Task, run_at: datetime, now: datetime, *, by: str = "", note: str = "") -> Task:
    """Change the due time of a waiting task, or the deadline of a parked one."""
    must_be(task, WAITING, operation="rescheduled")
    entry = Entry(at=spell(now), what="reschedule", phase=task.phase, by=by, note=note or spell(run_at))
    scheduled = task.scheduled_time if task.awaiting is not None else run_at
    return task.with_changes(now, run_at=run_at, scheduled_time=scheduled, logs_json=task.history_with(entry))


def set_priority(task: Task, priority: int, now: datetime, *, by: str = "", note: str = "") -> Task:
    """Change the priority of a task that has not ended."""
    must_be(task, WAITING, PROCESSING, operation="given another priority")
    entry = Entry(
        at=spell(now), what="set_priority", phase=task.phase, by=by, note=note or f"{task.priority} → {priority}"
    )
    return task.with_changes(now, priority=check_priority(priority), logs_json=task.history_with(entry))


def annotate(task: Task, metadata: str, now: datetime) -> Task:
    """Replace the user's metadata; the trace context stays."""
    kept = (
        {key: value for key, value in task.metadata.items() if key in CARRIED} if "trace" in task.metadata_json else {}
    )
    if kept:
        metadata = values.encode({**kept, **values.decode(metadata)}, "metadata")
    return task.with_changes(now, metadata_json=metadata)
