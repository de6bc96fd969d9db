"""The moves: each takes a task and returns what becomes of it. No store, no clock, no log.

Claiming is the one move that a store makes itself, because only it can choose: `claimed` says what it must write.
A rule that the task's status forbids raises IllegalMove and changes nothing.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from onerow.core import signals, values
from onerow.core.durations import parse_duration
from onerow.core.errors import BadInput, BadPayload, IllegalMove
from onerow.core.failure import Failure, failure
from onerow.core.history import Entry
from onerow.core.plan import PhasePlan, Plan
from onerow.core.retry import Retry
from onerow.core.signals import MAX_SIGNALS
from onerow.core.status import CANCELLED, COMPLETED, FAILED, PROCESSING, WAITING, Status
from onerow.core.steps import expected_children
from onerow.core.steps import expired as expired_steps
from onerow.core.task import Task
from onerow.core.times import FAR, parse_time, spell, to_millis

CRASH_LIMIT = 3
"""So many crashes of one phase end a task."""

_encode = msgspec.json.Encoder().encode


# ── claims ────────────────────────────────────────────────────────────────────────────────────────────────────────


def claimed(task: Task, worker: str, until: datetime, now: datetime, slot: int | None, key_slot: int | None) -> Task:
    """A waiting task in a worker's hands; token and attempt grow by one."""
    _must_be(task, WAITING, act="claimed")
    if task.awaiting is not None or task.run_at > now:
        raise IllegalMove(f"task {task.task_id} is parked or not due", task_id=task.task_id, status=task.status)
    return task.to(
        PROCESSING,
        now,
        leased_by=worker,
        leased_until=until,
        token=task.token + 1,
        attempt=task.attempt + 1,
        started_at=now,
        completed_at=None,
        slot=slot,
        key_slot=key_slot,
    )


# ── by the worker that holds it ───────────────────────────────────────────────────────────────────────────────────


def advance(task: Task, plan: Plan, result: str | None, now: datetime, *, by: str = "", to: str | None = None) -> Task:
    """An attempt returned: on to the next phase (or a later one, `to`), or completed after the last.

    `result` is JSON text; None stands for nothing returned. Raises BadPayload when the row would grow too large.
    """
    _must_be(task, PROCESSING)
    results = (
        task.results_json
        if result is None or result == "null"
        else values.with_key(task.results_json, task.phase, result)
    )
    if len(results) > 100_000:
        _check_row(task, results)
    elapsed = _elapsed(task, now)
    next_phase = plan.after(task.phase) if to is None else _later(plan, task.phase, to)
    what = "completed" if next_phase is None else "advanced"
    note = f"to {next_phase.name}" if to is not None and next_phase is not None else ""
    entry = Entry(at=spell(now), what=what, phase=task.phase, attempt=task.attempt, ms=elapsed, by=by, note=note)
    if next_phase is None or task.cancel_requested:
        # A cancel that was acknowledged is final: the phase's result is kept, and nothing follows.
        end = CANCELLED if task.cancel_requested else COMPLETED
        return _end(task, end, now, results_json=results, elapsed_time=elapsed, logs_json=task.noting(entry))
    return _enter(task, plan, next_phase, now, results_json=results, elapsed_time=elapsed, logs_json=task.noting(entry))


def complete(task: Task, result: str | None, now: datetime, *, by: str = "") -> Task:
    """An attempt said that nothing more is to be done: completed, whatever phases are left."""
    _must_be(task, PROCESSING)
    results = task.results_json if result is None else values.with_key(task.results_json, task.phase, result)
    _check_row(task, results)
    elapsed = _elapsed(task, now)
    entry = Entry(
        at=spell(now), what="completed", phase=task.phase, attempt=task.attempt, ms=elapsed, by=by, note="early"
    )
    end = CANCELLED if task.cancel_requested else COMPLETED
    return _end(task, end, now, results_json=results, elapsed_time=elapsed, logs_json=task.noting(entry))


def fail(task: Task, why: Failure, plan: Plan, now: datetime, *, by: str = "") -> Task:
    """What becomes of a task whose attempt raised: again later while its class and budget allow, else failed."""
    _must_be(task, PROCESSING)
    tried = _tried(task, why, now, by)
    if task.cancel_requested:
        return _end(task, CANCELLED, now, **tried)
    policy = plan.phase(task.phase).retry if plan.knows(task.phase) else PhasePlan(name=task.phase).retry
    spent = task.retry_count - task.retry_base
    wait = policy.after(why, spent, task.task_id)
    if wait is None or spent >= task.max_retries:
        return _end(task, FAILED, now, **tried)
    return task.to(WAITING, now, run_at=to_millis(now + wait), retry_count=task.retry_count + 1, **tried)


def crash(task: Task, why: Failure, now: datetime, *, by: str = "") -> Task:
    """The process that ran the task died: again, alone, until it has crashed too often."""
    _must_be(task, PROCESSING)
    count = task.crash_count + 1
    tried = _tried(task, why, now, by) | {"crash_count": count}
    if task.cancel_requested:
        return _end(task, CANCELLED, now, **tried)
    if count >= CRASH_LIMIT:
        return _end(task, FAILED, now, **tried)
    return task.to(WAITING, now, run_at=now, **tried)


def rescue(task: Task, now: datetime, *, by: str = "") -> Task:
    """A task whose worker is gone: as `crash`, and the token grows so that the lost holder can't come back."""
    message = f"worker {task.leased_by} died or lost its lease in {task.phase}"
    rescued = crash(task, failure(message, "crash"), now, by=by)
    return msgspec.structs.replace(rescued, token=task.token + 1)


def snooze(task: Task, for_: timedelta, now: datetime, *, by: str = "") -> Task:
    """Not now: waiting until later, at no cost."""
    _must_be(task, PROCESSING)
    if task.cancel_requested:
        return _cancelled_by_request(task, now, by)
    entry = _attempted(task, now, "snoozed", by)
    return task.to(WAITING, now, run_at=to_millis(now + for_), started_at=None, logs_json=task.noting(entry))


def hand_back(task: Task, now: datetime, *, by: str = "", started: bool = True, run_at: datetime | None = None) -> Task:
    """Given back unfinished (drain, or never started): waiting as before, or until later, at no cost."""
    _must_be(task, PROCESSING)
    if task.cancel_requested:
        return _cancelled_by_request(task, now, by)
    logs = task.noting(_attempted(task, now, "handed back", by)) if started else task.logs_json
    later = task.run_at if run_at is None else run_at
    return task.to(WAITING, now, run_at=later, started_at=None, attempt=task.attempt - 1, logs_json=logs)


def stop_cancelled(task: Task, now: datetime, *, by: str = "") -> Task:
    """Its running work was stopped because someone asked: cancelled."""
    _must_be(task, PROCESSING)
    return _cancelled_by_request(task, now, by)


def park(task: Task, awaiting: str, deadline: datetime | None, now: datetime, *, by: str = "", **changes: Any) -> Task:
    """Waiting for something from outside, holding no slot; ready at once if its signal came early."""
    _must_be(task, PROCESSING)
    if task.cancel_requested:
        return _cancelled_by_request(task, now, by)
    entry = _attempted(task, now, "parked", by, note=awaiting)
    changes["logs_json"] = task.noting(entry)
    if awaiting.startswith("signal:") and signals.has(task.signals_json, awaiting.removeprefix("signal:")):
        return task.to(WAITING, now, run_at=now, started_at=None, **changes)
    return task.to(WAITING, now, awaiting=awaiting, run_at=deadline or FAR, started_at=None, **changes)


# ── by sweeps ─────────────────────────────────────────────────────────────────────────────────────────────────────


def pass_(task: Task, plan: Plan, now: datetime) -> Task:
    """A due task at a phase without code goes on to the next; a signal that let it pass is its result."""
    _must_be(task, WAITING)
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
    changes |= {"results_json": results, "logs_json": task.noting(entry)}
    if next_phase is None:
        return _end(task, COMPLETED, now, **changes)
    return _enter(task, plan, next_phase, now, **changes)


def expire(task: Task, plan: Plan | None, now: datetime) -> Task:
    """A parked task past its deadline: on to its `on_timeout` phase, else failed with class timeout."""
    _must_be(task, WAITING)
    if task.awaiting is None or task.run_at > now:
        raise IllegalMove(f"task {task.task_id} has not expired", task_id=task.task_id)
    what = task.awaiting.removeprefix("signal:")
    entry = Entry(at=spell(now), what="expired", phase=task.phase, error_class="timeout", note=task.awaiting)
    phase = plan.phase(task.phase) if plan is not None and plan.knows(task.phase) else None
    if plan is not None and phase is not None and not phase.has_code and phase.on_timeout:
        on = plan.phase(phase.on_timeout)
        return _enter(task, plan, on, now, logs_json=task.noting(entry))
    if phase is not None and phase.has_code:
        # It waits inside a handler, which is told where it waited.
        return task.but(
            now, awaiting=None, run_at=now, steps_json=expired_steps(task, now), logs_json=task.noting(entry)
        )
    lacked = "the children had not ended" if what == "children" else f"nobody signalled {what!r}"
    message = f"{lacked} in {task.phase} before {spell(task.run_at)}"
    return _end(task, FAILED, now, awaiting=None, error=message, error_class="timeout", logs_json=task.noting(entry))


def gather(task: Task, plan: Plan, ended: Mapping[Status, int], now: datetime) -> Task:
    """Every child of a parked parent has ended: its handler may go on, or its phase without code passes."""
    _must_be(task, WAITING)
    if task.awaiting != "children":
        raise IllegalMove(f"task {task.task_id} doesn't wait for children", task_id=task.task_id)
    phase = plan.phase(task.phase)
    if phase.has_code:
        return task.but(now, awaiting=None, run_at=now)
    total = sum(ended.values())
    counted = {"total": total, **{end.value: ended.get(end, 0) for end in (COMPLETED, FAILED, CANCELLED)}}
    lacking = total - counted["completed"]
    entry = Entry(at=spell(now), what="passed", phase=task.phase, note=f"{total} children ended, {lacking} badly")
    logs = task.noting(entry)
    if phase.all_must_succeed and lacking:
        message = f"{lacking} of {total} children of {task.phase} did not complete"
        return _end(task, FAILED, now, awaiting=None, error=message, error_class="permanent", logs_json=logs)
    results = values.with_key(task.results_json, task.phase, _encode(counted).decode())
    next_phase = plan.after(task.phase)
    if next_phase is None:
        return _end(task, COMPLETED, now, awaiting=None, results_json=results, logs_json=logs)
    return _enter(task, plan, next_phase, now, results_json=results, logs_json=logs)


def rename(task: Task, plan: Plan, now: datetime) -> Task:
    """A waiting task at a phase's former name stands at its present one."""
    _must_be(task, WAITING)
    return task.but(now, phase=plan.phase(task.phase).name)


def release_key(task: Task, now: datetime) -> Task:
    """A remembered unique key whose time is over is free again."""
    if not task.ended or task.held_until is None or task.held_until > now:
        raise IllegalMove(f"task {task.task_id} still holds its key", task_id=task.task_id)
    # A tombstone keeps the date, by which the next purge finds it.
    return task.but(now, held_key=None, held_until=None if task.purged_at is None else task.held_until)


# ── by people and programs outside ────────────────────────────────────────────────────────────────────────────────


def signal(task: Task, name: str, payload: str, signal_id: str, now: datetime, *, by: str = "") -> Task:
    """A signal reaches a task that has not ended; it waits for the first park that matches, unless one does now."""
    if task.ended:
        raise IllegalMove(
            f"task {task.task_id} is {task.status}; a signal reaches only tasks that have not ended",
            task_id=task.task_id,
            status=task.status,
        )
    if signals.knows(task.signals_json, signal_id):
        return task  # delivered again; also when it was taken meanwhile
    if len(signals.kept(task.signals_json)) >= MAX_SIGNALS:
        raise BadInput(
            f"task {task.task_id} already keeps {MAX_SIGNALS} signals that nothing waits for", field="signal"
        )
    kept = signals.keep(task.signals_json, name, payload, signal_id, now)
    logs = task.noting(Entry(at=spell(now), what="signal", phase=task.phase, by=by, note=name))
    if task.awaiting == f"signal:{name}":
        return task.but(now, signals_json=kept, awaiting=None, run_at=now, logs_json=logs)
    return task.but(now, signals_json=kept, logs_json=logs)


def cancel(task: Task, now: datetime, *, by: str = "", note: str = "") -> Task:
    """Waiting and failed tasks end at once; running ones are asked, and end when their work has stopped."""
    entry = Entry(at=spell(now), what="cancel", phase=task.phase, by=by, note=note)
    if task.status is PROCESSING:
        if task.cancel_requested:
            return task
        return task.but(now, cancel_requested=True, logs_json=task.noting(entry))
    _must_be(task, WAITING, FAILED, act="cancelled")
    return _end(task, CANCELLED, now, awaiting=None, logs_json=task.noting(entry))


def fail_by_hand(task: Task, why: Failure, now: datetime, *, by: str = "", note: str = "") -> Task:
    """What a waiting task waits for will not come, as someone outside knows: failed at its phase, with their reason."""
    _must_be(task, WAITING, act="failed by hand")
    entry = Entry(
        at=spell(now), what="fail", phase=task.phase, by=by, note=note, error=why.message, error_class=why.error_class
    )
    changes = {"error": why.message, "error_class": why.error_class, "logs_json": task.noting(entry)}
    return _end(task, FAILED, now, awaiting=None, **changes)


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
    """A failed task waits again at its phase, with a fresh budget."""
    _must_be(task, FAILED, act="retried")
    wait = timedelta(0) if policy is None else _allowed_by(policy, task)
    count = task.retry_count + 1 if retry_count is None else check_retry_count(retry_count)
    entry = Entry(at=spell(now), what="retry", phase=task.phase, by=by, note=note)
    again = _enter(
        task,
        plan,
        plan.phase(task.phase),
        now,
        fresh=False,
        retry_count=count,
        retry_base=count,
        logs_json=task.noting(entry),
    )
    return msgspec.structs.replace(again, run_at=to_millis(now + wait)) if wait and again.awaiting is None else again


def _allowed_by(policy: Retry, task: Task) -> timedelta:
    """How long the policy lets a failed task wait for its next try; raises IllegalMove when it allows none."""
    wait = policy.after(failure(task.error or "", task.error_class or "unknown"), task.retry_count, task.task_id)
    if wait is not None and task.retry_count < policy.max_retries:
        return wait
    why = f"class {task.error_class}" if wait is None else f"retried {task.retry_count} times"
    raise IllegalMove(
        f"task {task.task_id} is not to be tried again by itself ({why}); to insist: onerow retry {task.task_id}",
        task_id=task.task_id,
        status=task.status,
    )


def replay(task: Task, plan: Plan, phase: str | None, now: datetime, *, by: str = "", note: str = "") -> Task:
    """An ended task runs again from a phase (the first by default); what came after it is cleared."""
    _must_be(task, COMPLETED, FAILED, act="replayed")
    start = plan.first if phase is None else plan.phase(phase)
    if plan.knows(task.phase) and plan.position(start.name) > plan.position(task.phase):
        raise IllegalMove(
            f"task {task.task_id} never reached {start.name}; replay it from {task.phase} or before",
            task_id=task.task_id,
            status=task.status,
        )
    cleared = plan.names_from(start.name)
    left = values.without_keys(task.steps_json, cleared)
    entry = Entry(at=spell(now), what="replay", phase=start.name, by=by, note=note)
    return _enter(
        task,
        plan,
        start,
        now,
        generation=task.generation + 1,
        results_json=values.without_keys(task.results_json, cleared),
        steps_json=left,
        children=expected_children(left),
        logs_json=task.noting(entry),
    )


def finish(
    task: Task,
    plan: Plan,
    now: datetime,
    *,
    by: str = "",
    note: str = "",
    phase_only: bool = False,
    result: str = "null",
) -> Task:
    """Done by hand: the task is completed, or (phase_only) this phase is and the next one waits."""
    _must_be(task, WAITING, FAILED, act="finished by hand")
    entry = Entry(at=spell(now), what="finish", phase=task.phase, by=by, note=note)
    changes: dict[str, Any] = {"logs_json": task.noting(entry)}
    if result != "null":
        changes["results_json"] = values.with_key(task.results_json, task.phase, result)
        _check_row(task, changes["results_json"])
    next_phase = plan.after(task.phase) if phase_only else None
    if next_phase is None:
        return _end(task, COMPLETED, now, awaiting=None, error=None, error_class=None, **changes)
    return _enter(task, plan, next_phase, now, **changes)


def reschedule(task: Task, run_at: datetime, now: datetime, *, by: str = "", note: str = "") -> Task:
    """A waiting task is due at another time; a parked one waits until then for its signal."""
    _must_be(task, WAITING, act="rescheduled")
    entry = Entry(at=spell(now), what="reschedule", phase=task.phase, by=by, note=note or spell(run_at))
    asked = task.scheduled_time if task.awaiting is not None else run_at
    return task.but(now, run_at=run_at, scheduled_time=asked, logs_json=task.noting(entry))


def reprioritise(task: Task, priority: int, now: datetime, *, by: str = "", note: str = "") -> Task:
    """A task that has not ended gets another place in the order."""
    _must_be(task, WAITING, PROCESSING, act="given another priority")
    entry = Entry(at=spell(now), what="priority", phase=task.phase, by=by, note=note or f"{task.priority} → {priority}")
    return task.but(now, priority=check_priority(priority), logs_json=task.noting(entry))


def annotate(task: Task, metadata: str, now: datetime) -> Task:
    """The user's own metadata, replaced."""
    return task.but(now, metadata_json=metadata)


def report(task: Task, now: datetime, *, progress: str | None = None, steps: str | None = None, **changes: Any) -> Task:
    """Progress or a step of a running attempt, written while it runs."""
    _must_be(task, PROCESSING)
    if progress is not None:
        changes["progress_json"] = progress
    if steps is not None:
        changes["steps_json"] = steps
    return task.but(now, **changes)


def bury(task: Task, now: datetime) -> Task:
    """A tombstone: an ended task emptied to its keys, which go on being held."""
    if not task.ended:
        raise IllegalMove(f"task {task.task_id} has not ended", task_id=task.task_id, status=task.status)
    return task.but(
        now, purged_at=now, title="", error=None, payload_json="null", results_json="{}", steps_json="{}",
        signals_json="[]", progress_json="null", metadata_json="{}", logs_json="[]",
    )  # fmt: skip


# ── pieces ────────────────────────────────────────────────────────────────────────────────────────────────────────


def check_priority(priority: int) -> int:
    """A priority from -100 to 100, lower first."""
    if type(priority) is not int or not -100 <= priority <= 100:
        raise BadInput(
            f"priority must be a whole number from -100 to 100 (lower runs first), not {priority!r}", field="priority"
        )
    return priority


def check_retry_count(count: int) -> int:
    """How often a task was retried, as someone who counts it himself says."""
    if type(count) is not int or not 0 <= count <= 1_000_000:
        raise BadInput(f"retry_count must be a whole number from 0 to 1,000,000, not {count!r}", field="retry_count")
    return count


def due_time(plan_phase: PhasePlan, payload: Any, default: datetime) -> datetime:
    """When a `wait_until` phase lets go: the time in the payload's field, or at once when it names none."""
    value = payload.get(plan_phase.field) if isinstance(payload, dict) else None
    return default if value is None else parse_time(value, f"payload.{plan_phase.field}")


def entering(phase: PhasePlan, now: datetime, payload_json: str, signals_json: str = "[]") -> dict[str, Any]:
    """The fields that standing before a phase sets: when it is due and what it waits for."""
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


def _enter(task: Task, plan: Plan, phase: PhasePlan, now: datetime, *, fresh: bool = True, **changes: Any) -> Task:
    """Waiting before a phase; a phase change starts its counts anew."""
    if phase.kind in ("run", "batch", "command"):  # the hot path of `entering`
        changes["run_at"] = now
        changes["awaiting"] = None
    else:
        changes |= entering(phase, now, task.payload_json, changes.get("signals_json", task.signals_json))
    if phase.kind == "wait_until":
        changes["scheduled_time"] = changes["run_at"]
    if fresh:
        changes.setdefault("retry_count", 0)
        changes.setdefault("retry_base", 0)
        changes["progress_json"] = "null"  # it told of the phase before
        if not task.own_retries:
            changes["max_retries"] = phase.retry.max_retries
    changes["phase"] = phase.name
    changes["attempt"] = changes["crash_count"] = 0
    changes["error"] = changes["error_class"] = changes["started_at"] = changes["completed_at"] = None
    changes["held_key"] = task.unique_key
    changes["held_until"] = None
    return task.become(WAITING, now, changes)


def _end(task: Task, status: Status, now: datetime, **changes: Any) -> Task:
    """Ended: the unique key is released, or remembered for as long as it was asked."""
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


def _tried(task: Task, why: Failure, now: datetime, by: str) -> dict[str, Any]:
    elapsed = _elapsed(task, now)
    entry = Entry(
        at=spell(now), what="failed", phase=task.phase, attempt=task.attempt, ms=elapsed, by=by,
        error=why.message, error_class=why.error_class, exception=why.exception, where=why.where,
    )  # fmt: skip
    return {
        "elapsed_time": elapsed,
        "error": why.message,
        "error_class": why.error_class,
        "logs_json": task.noting(entry),
    }


def _attempted(task: Task, now: datetime, what: str, by: str, note: str = "") -> Entry:
    return Entry(
        at=spell(now), what=what, phase=task.phase, attempt=task.attempt, ms=_elapsed(task, now), by=by, note=note
    )


def _cancelled_by_request(task: Task, now: datetime, by: str) -> Task:
    return _end(
        task,
        CANCELLED,
        now,
        elapsed_time=_elapsed(task, now),
        logs_json=task.noting(_attempted(task, now, "cancelled", by)),
    )


def _elapsed(task: Task, now: datetime) -> int:
    if task.started_at is None:
        return 0
    return max(0, int((now - task.started_at).total_seconds() * 1000 + 0.5))


def _later(plan: Plan, here: str, there: str) -> PhasePlan:
    if plan.position(there) <= plan.position(here):
        raise BadInput(f"a jump leads to a later phase; {there!r} is not after {here!r}", field="phase")
    return plan.phase(there)


def _check_row(task: Task, results: str) -> None:
    size = len(results) + len(task.payload_json) + len(task.steps_json) + len(task.logs_json) + len(task.metadata_json)
    if size > values.MAX_ROW:
        raise BadPayload(
            f"the result of {task.phase} would make the row {size:,} bytes; at most {values.MAX_ROW:,}. "
            f"Store it elsewhere and return a path or key",
            field="result",
        )


def _must_be(task: Task, *statuses: Status, act: str = "") -> None:
    if task.purged_at is not None:
        raise IllegalMove(f"task {task.task_id} was purged; only its keys are left", task_id=task.task_id)
    if task.status not in statuses:
        wanted = " or ".join(statuses)
        raise IllegalMove(
            f"task {task.task_id} is {task.status}; only {wanted} tasks can be {act or 'moved so'}",
            task_id=task.task_id,
            status=task.status,
        )
