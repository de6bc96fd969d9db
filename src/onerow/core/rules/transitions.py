"""Building blocks shared by the rules."""

from datetime import datetime
from typing import Any

from onerow.core import signals, values
from onerow.core.durations import parse_duration
from onerow.core.errors import BadInput, BadPayload, IllegalMove
from onerow.core.failure import Failure
from onerow.core.history import Entry
from onerow.core.plan import PhasePlan, Plan
from onerow.core.status import CANCELLED, COMPLETED, WAITING, Status
from onerow.core.task import Task
from onerow.core.times import FAR, parse_time, spell, to_millis


def check_priority(priority: int) -> int:
    """Return a priority from -100 to 100; raise BadInput for any other."""
    if type(priority) is not int or not -100 <= priority <= 100:
        raise BadInput(
            f"priority must be a whole number from -100 to 100 (lower runs first), not {priority!r}", field="priority"
        )
    return priority


def check_retry_count(count: int) -> int:
    """Return a retry count given by a caller that counts retries itself; raise BadInput if it is invalid."""
    if type(count) is not int or not 0 <= count <= 1_000_000:
        raise BadInput(f"retry_count must be a whole number from 0 to 1,000,000, not {count!r}", field="retry_count")
    return count


def due_time(plan_phase: PhasePlan, payload: Any, default: datetime) -> datetime:
    """Return when a `wait_until` phase is due: the time in the payload's field, or `default` if there is none."""
    value = payload.get(plan_phase.field) if isinstance(payload, dict) else None
    return default if value is None else parse_time(value, f"payload.{plan_phase.field}")


def entering(phase: PhasePlan, now: datetime, payload_json: str, signals_json: str = "[]") -> dict[str, Any]:
    """Return `run_at` and `awaiting` of a task that enters a phase."""
    if phase.kind == "wait_until":
        return {"run_at": due_time(phase, values.decode(payload_json), now), "awaiting": None}
    if phase.kind == "wait_for":
        if signals.has(signals_json, phase.signal):
            return {"run_at": now, "awaiting": None}
        deadline = FAR if phase.timeout is None else to_millis(now + phase.timeout)
        return {"run_at": deadline, "awaiting": f"signal:{phase.signal}"}
    if phase.kind == "wait_children":
        return {"run_at": FAR if phase.timeout is None else to_millis(now + phase.timeout), "awaiting": "children"}
    return {"run_at": now, "awaiting": None}


def entered(task: Task, phase: PhasePlan, now: datetime, *, fresh: bool = True, **changes: Any) -> Task:
    """Return the task waiting at a phase; `fresh` resets its retry counts and its progress."""
    if phase.kind in ("run", "batch", "command"):  # fast path of `entering`
        changes["run_at"] = now
        changes["awaiting"] = None
    else:
        changes |= entering(phase, now, task.payload_json, changes.get("signals_json", task.signals_json))
    if phase.kind == "wait_until":
        changes["scheduled_time"] = changes["run_at"]
    if fresh:
        changes.setdefault("retry_count", 0)
        changes.setdefault("retry_base", 0)
        changes["progress_json"] = "null"  # the progress belongs to the previous phase
        if not task.own_retries:
            changes["max_retries"] = phase.retry.max_retries
    changes["phase"] = phase.name
    changes["attempt"] = changes["crash_count"] = changes["rescue_count"] = 0
    changes["error"] = changes["error_class"] = changes["started_at"] = changes["completed_at"] = None
    changes["held_key"] = task.unique_key
    changes["held_until"] = None
    return task.become(WAITING, now, changes)


def ended(task: Task, status: Status, now: datetime, **changes: Any) -> Task:
    """Return the task in an ended status; its unique key is released, or held for `unique_for`."""
    if status is COMPLETED:
        changes["error"] = changes["error_class"] = None
    if task.held_key is not None:
        if task.unique_for is None:
            changes["held_key"] = None
        else:
            changes["held_until"] = (
                FAR if task.unique_for == "forever" else to_millis(now + parse_duration(task.unique_for))
            )
    changes["completed_at"] = now
    return task.become(status, now, changes)


def failed_attempt(task: Task, why: Failure, now: datetime, by: str) -> dict[str, Any]:
    """Return the changes that a failed attempt makes to the row."""
    elapsed = elapsed_ms(task, now)
    entry = Entry(
        at=spell(now), what="failed", phase=task.phase, attempt=task.attempt, ms=elapsed, by=by,
        error=why.message, error_class=why.error_class, exception=why.exception, where=why.where,
    )  # fmt: skip
    return {
        "elapsed_time": elapsed,
        "error": why.message,
        "error_class": why.error_class,
        "logs_json": task.history_with(entry),
    }


def attempted(task: Task, now: datetime, what: str, by: str, note: str = "") -> Entry:
    """Return the history entry of an attempt that ended without result or error."""
    return Entry(
        at=spell(now), what=what, phase=task.phase, attempt=task.attempt, ms=elapsed_ms(task, now), by=by, note=note
    )


def cancelled_by_request(task: Task, now: datetime, by: str) -> Task:
    """Return the task cancelled, because of a request made while it ran."""
    return ended(
        task,
        CANCELLED,
        now,
        elapsed_time=elapsed_ms(task, now),
        logs_json=task.history_with(attempted(task, now, "cancelled", by)),
    )


def elapsed_ms(task: Task, now: datetime) -> int:
    """Return the milliseconds since the attempt started."""
    if task.started_at is None:
        return 0
    return max(0, int((now - task.started_at).total_seconds() * 1000 + 0.5))


def later_phase(plan: Plan, here: str, there: str) -> PhasePlan:
    """Return the phase `there`; raise BadInput unless it comes after `here`."""
    if plan.position(there) <= plan.position(here):
        raise BadInput(f"a jump goes to a later phase, and {there!r} is not after {here!r}", field="phase")
    return plan.phase(there)


def check_row(task: Task, results: str) -> None:
    """Raise BadPayload if the row would become too large with these results."""
    size = len(results) + len(task.payload_json) + len(task.steps_json) + len(task.logs_json) + len(task.metadata_json)
    if size > values.MAX_ROW:
        raise BadPayload(
            f"the result of {task.phase} would make the row {size:,} characters, at most {values.MAX_ROW:,} are stored",
            fix="store it elsewhere and return a path or key",
            field="result",
        )


def must_be(task: Task, *statuses: Status, operation: str = "", fix: str = "") -> None:
    """Raise IllegalMove unless the task is in one of these statuses."""
    if task.purged_at is not None:
        raise IllegalMove(
            f"task {task.task_id} was purged; only its keys are left", fix="add a new task", task_id=task.task_id
        )
    if task.status not in statuses:
        wanted = " or ".join(statuses)
        need = f"only {wanted} tasks can be {operation}" if operation else f"this requires a {wanted} task"
        raise IllegalMove(
            f"task {task.task_id} is {task.status}; {need}",
            fix=fix,
            task_id=task.task_id,
            status=task.status,
        )
