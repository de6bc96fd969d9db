"""The attempt of a worker: its outcomes, and the rules for a claim, a report and each outcome."""

from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from onerow.core import signals, values
from onerow.core.corruption import applied, problems, quarantine
from onerow.core.durations import spell_duration
from onerow.core.errors import BadInput, IllegalMove, with_fix
from onerow.core.failure import Failure, classify, failure
from onerow.core.history import Entry
from onerow.core.outcomes import WaitExpired
from onerow.core.plan import Plan
from onerow.core.retry import Retry
from onerow.core.rules.chosen import cancel_itself, skip, sleep, snooze
from onerow.core.rules.transitions import (
    attempted,
    cancelled_by_request,
    check_row,
    elapsed_ms,
    ended,
    entered,
    failed_attempt,
    later_phase,
    must_be,
)
from onerow.core.status import CANCELLED, COMPLETED, FAILED, PROCESSING, WAITING
from onerow.core.steps import Record, records, with_record, without_last_expired
from onerow.core.task import Task
from onerow.core.times import FAR, read, spell, to_millis
from onerow.core.values import check_text

CRASH_LIMIT = 3
"""A task fails when its isolated process has died this often in one phase."""


TRY_RESOURCE_AGAIN = timedelta(seconds=30)
"""How long a task waits whose isolated process could not make a resource."""

StopReason = Literal["cancel", "timeout", "lost", "drain"]


class Done(msgspec.Struct, frozen=True, tag=True):
    """The handler returned; its result as JSON text."""

    result: str | None = None


class Jumped(msgspec.Struct, frozen=True, tag=True):
    """The handler returned a Jump to a later phase; limit_key: None keeps that of the task."""

    phase: str
    result: str | None = None
    limit_key: str | None = None


class Finished(msgspec.Struct, frozen=True, tag=True):
    """The handler returned a Finish: the task is completed."""

    result: str | None = None


class Waiting(msgspec.Struct, frozen=True, tag=True):
    """The handler waits for a signal or its children, and its slot is free."""

    name: str
    awaiting: str
    timeout: timedelta | None = None


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The handler raised."""

    why: Failure


class Crashed(msgspec.Struct, frozen=True, tag=True):
    """The isolated process of the attempt crashed."""

    why: Failure


class Interrupted(msgspec.Struct, frozen=True, tag=True):
    """The attempt ended for a cause outside its task, for example a killed process; `why` names the cause."""

    why: str


class Snoozed(msgspec.Struct, frozen=True, tag=True):
    """The handler asked to run again later; `hold_phase`: and that no task of the phase starts until then, for `reason`."""

    for_: timedelta
    reason: str = ""
    hold_phase: bool = False


class CancelledItself(msgspec.Struct, frozen=True, tag=True):
    """The handler cancelled its own task."""

    reason: str


class Skipped(msgspec.Struct, frozen=True, tag=True):
    """The handler skipped its phase."""

    reason: str


class Sleeping(msgspec.Struct, frozen=True, tag=True):
    """The handler sleeps, and its slot is free."""

    name: str
    for_: timedelta


class Stopped(msgspec.Struct, frozen=True, tag=True):
    """The worker stopped the attempt."""

    reason: StopReason
    but: str = ""  # why it could not be stopped at its timeout


class Unstarted(msgspec.Struct, frozen=True, tag=True):
    """The task was claimed but never started; with `until`, it is put off to that time."""

    until: datetime | None = None


class Unready(msgspec.Struct, frozen=True, tag=True):
    """A resource of the handler could not be made, so the handler was not called."""

    why: str


Outcome = (
    Done | Jumped | Finished | Waiting | Failed | Crashed | Interrupted | Snoozed | CancelledItself | Skipped | Sleeping
    | Stopped | Unstarted | Unready
)  # fmt: skip


def claimed(task: Task, worker: str, until: datetime, now: datetime, slot: int | None, key_slot: int | None) -> Task:
    """Lease a waiting task to a worker; token and attempt increase by one."""
    must_be(task, WAITING, operation="claimed")
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


def complete(task: Task, plan: Plan, result: str | None, now: datetime, *, by: str = "", to: str | None = None) -> Task:
    """Complete the phase: store the result and enter the next phase (or the later phase `to`), or end after the last.

    `result` is JSON text; None means no result. Raises BadPayload if the row would become too large.
    """
    must_be(task, PROCESSING)
    results = (
        task.results_json
        if result is None or result == "null"
        else values.with_key(task.results_json, task.phase, result)
    )
    if len(results) > 100_000:
        check_row(task, results)
    elapsed = elapsed_ms(task, now)
    next_phase = plan.after(task.phase) if to is None else later_phase(plan, task.phase, to)
    what = "completed" if next_phase is None else "advanced"
    note = f"to {next_phase.name}" if to is not None and next_phase is not None else ""
    entry = Entry(at=spell(now), what=what, phase=task.phase, attempt=task.attempt, ms=elapsed, by=by, note=note)
    if next_phase is None or task.cancel_requested:
        # An accepted cancel request is final: the result is kept, and the next phase doesn't run.
        end = CANCELLED if task.cancel_requested else COMPLETED
        return ended(task, end, now, results_json=results, elapsed_time=elapsed, logs_json=task.history_with(entry))
    return entered(
        task, next_phase, now, results_json=results, elapsed_time=elapsed, logs_json=task.history_with(entry)
    )


def finish(task: Task, result: str | None, now: datetime, *, by: str = "") -> Task:
    """Complete the task without running the remaining phases (the handler returned Finish)."""
    must_be(task, PROCESSING)
    results = task.results_json if result is None else values.with_key(task.results_json, task.phase, result)
    check_row(task, results)
    elapsed = elapsed_ms(task, now)
    entry = Entry(
        at=spell(now), what="completed", phase=task.phase, attempt=task.attempt, ms=elapsed, by=by, note="early"
    )
    end = CANCELLED if task.cancel_requested else COMPLETED
    return ended(task, end, now, results_json=results, elapsed_time=elapsed, logs_json=task.history_with(entry))


def fail(task: Task, why: Failure, plan: Plan, now: datetime, *, by: str = "") -> Task:
    """Schedule a retry after a failed attempt if error class and retry budget allow it, else fail the task."""
    must_be(task, PROCESSING)
    # The attempt ended without killing its process, so the task needs no isolation, unless it may harm others.
    tried = failed_attempt(task, why, now, by) | {"rescue_count": min(task.rescue_count, _harms_others(why))}
    if why.exception == WaitExpired.__name__:
        # The expired wait ended the attempt, so the retry waits again. If the handler caught WaitExpired, the record
        # stays, because a later attempt must take the same branch.
        tried["steps_json"] = without_last_expired(task)
    if task.cancel_requested:
        return ended(task, CANCELLED, now, **tried)
    policy = _policy(task, plan)
    spent = task.retry_count - task.retry_base
    wait = policy.after(why, spent, task.task_id)
    if wait is None or spent >= task.max_retries:
        return ended(task, FAILED, now, **tried)
    return task.to(WAITING, now, run_at=to_millis(now + wait), retry_count=task.retry_count + 1, **tried)


def _harms_others(why: Failure) -> bool:
    """Whether what failed may also make other attempts fail that run in the same process."""
    return why.error_class == "resource" or why.exception in ("CancelledError", "Cancelled")


def crash(task: Task, why: Failure, now: datetime, *, by: str = "") -> Task:
    """Run the task again, isolated, after its isolated process died; fail it at the third crash in one phase."""
    must_be(task, PROCESSING)
    count = task.crash_count + 1
    tried = failed_attempt(task, why, now, by) | {"crash_count": count, "rescue_count": 0}
    if task.cancel_requested:
        return ended(task, CANCELLED, now, **tried)
    if count >= CRASH_LIMIT:
        return ended(task, FAILED, now, **tried)
    return task.to(WAITING, now, run_at=now, **tried)


def interrupt(task: Task, why: str, now: datetime, *, by: str = "", plan: Plan | None = None) -> Task:
    """Run the task again, isolated and at no cost of retries, after its attempt was cut off from outside.

    After `Retry.max_rescues` interruptions in a row, the next one fails the task.
    """
    must_be(task, PROCESSING)
    if task.cancel_requested:
        return cancelled_by_request(task, now, by)
    count = task.rescue_count + 1
    most = _policy(task, plan).max_rescues
    if count > most:
        message = f"{task.phase} was cut off {count} times in a row without an outcome (max_rescues={most}): {why}"
        tried = failed_attempt(task, failure(message, "crash", exception="TooManyRescues"), now, by)
        return ended(task, FAILED, now, rescue_count=count, **tried)
    entry = attempted(task, now, "rescued", by, note=why)
    return task.to(WAITING, now, run_at=now, rescue_count=count, logs_json=task.history_with(entry))


def rescue(task: Task, now: datetime, *, by: str = "", plan: Plan | None = None) -> Task:
    """Interrupt the attempt of a lost worker; the token increases, so that a late write of that worker is rejected."""
    after = interrupt(task, _lost_by(task), now, by=by, plan=plan)
    return msgspec.structs.replace(after, token=task.token + 1)


def uncount_rescue(task: Task, lost: Task, now: datetime) -> Task:
    """Take back the count of the last rescue, if it was that of the attempt `lost`, which had not begun."""
    must_be(task, WAITING, PROCESSING)
    last = [(entry.what, entry.phase, entry.attempt, entry.note) for entry in task.history[-1:]]
    if not task.rescue_count or last != [("rescued", lost.phase, lost.attempt, _lost_by(lost))]:
        return task
    return task.with_changes(now, rescue_count=task.rescue_count - 1)


def _lost_by(task: Task) -> str:
    return f"worker {task.leased_by} died or lost its lease"


def hand_back(
    task: Task, now: datetime, *, by: str = "", started: bool = True, run_at: datetime | None = None, note: str = ""
) -> Task:
    """Return an unfinished or unstarted task to waiting, due as before or at `run_at`; the attempt doesn't count."""
    must_be(task, PROCESSING)
    if task.cancel_requested:
        return cancelled_by_request(task, now, by)
    logs = task.history_with(attempted(task, now, "handed back", by, note)) if started else task.logs_json
    later = task.run_at if run_at is None else run_at
    return task.to(WAITING, now, run_at=later, started_at=None, attempt=task.attempt - 1, logs_json=logs)


def stop_cancelled(task: Task, now: datetime, *, by: str = "") -> Task:
    """Cancel a running task whose handler has stopped on request."""
    must_be(task, PROCESSING)
    return cancelled_by_request(task, now, by)


def park(task: Task, awaiting: str, deadline: datetime | None, now: datetime, *, by: str = "", **changes: Any) -> Task:
    """Let the task wait for a signal or its children without a slot; it is due at once if the signal is there already."""
    must_be(task, PROCESSING)
    if task.cancel_requested:
        return cancelled_by_request(task, now, by)
    entry = attempted(task, now, "parked", by, note=awaiting)
    changes |= {"logs_json": task.history_with(entry), "rescue_count": 0}
    if awaiting.startswith("signal:") and signals.has(task.signals_json, awaiting.removeprefix("signal:")):
        return task.to(WAITING, now, run_at=now, started_at=None, **changes)
    return task.to(WAITING, now, awaiting=awaiting, run_at=deadline or FAR, started_at=None, **changes)


def wait(task: Task, name: str, awaiting: str, timeout: timedelta | None, now: datetime, *, by: str = "") -> Task:
    """Park the task at a wait of its handler; the deadline counts from the first time that it waited there."""
    known = records(task).get(name)
    if known is not None and known.open:
        until = read(known.until) if known.until else None
    else:
        until = None if timeout is None else to_millis(now + timeout)
    record = Record(at=spell(now), awaiting=awaiting, until=spell(until) if until else "")
    return park(task, awaiting, until, now, by=by, steps_json=with_record(task, name, record))


def report(task: Task, now: datetime, *, progress: str | None = None, steps: str | None = None, **changes: Any) -> Task:
    """Store progress or a step of a running attempt."""
    must_be(task, PROCESSING)
    if progress is not None:
        changes["progress_json"] = progress
    if steps is not None:
        changes["steps_json"] = steps
    return task.with_changes(now, **changes)


def _policy(task: Task, plan: Plan | None) -> Retry:
    """Return the retry policy of the task's phase; the default policy if the plan doesn't know the phase."""
    return plan.phase(task.phase).retry if plan is not None and plan.knows(task.phase) else _DEFAULT_POLICY


_DEFAULT_POLICY = Retry()


_UNREADABLE = frozenset({"BadPayload", "CorruptRow", "DecodeError", "ValidationError"})
"""Exceptions raised when a handler reads a corrupt column of its task."""


def decide(task: Task, plan: Plan, outcome: Outcome, now: datetime, by: str, *, own: Plan | None = None) -> Task | None:
    """Return the task after its attempt; None if the lease was lost. A corrupt row is quarantined.

    plan: the definition that the task follows. own: the definition whose timeout applied, if different.
    """
    if type(outcome) is Failed and outcome.why.exception in _UNREADABLE and problems(task):
        return quarantine(task, now, by=by)
    return applied(lambda task: _decide(task, plan, outcome, now, by, own), task, now, by=by)


def _decide(task: Task, plan: Plan, outcome: Outcome, now: datetime, by: str, own: Plan | None) -> Task | None:
    match outcome:
        case Done(result=result):
            try:
                return complete(task, plan, result, now, by=by)
            except BadInput as error:  # the result would make the row too large
                return fail(task, classify(error), plan, now, by=by)
        case Failed(why=why):
            return fail(task, why, plan, now, by=by)
        case Jumped() | Finished() | Waiting() | Sleeping():
            try:
                return _jump_finish_or_wait(task, plan, outcome, now, by)
            except BadInput as error:
                return fail(task, failure(with_fix(error), "permanent", exception="BadInput"), plan, now, by=by)
        case Snoozed(for_=span):
            return snooze(task, span, now, by=by)
        case CancelledItself(reason=reason):
            return cancel_itself(task, reason, now, by=by)
        case Skipped(reason=reason):
            return skip(task, plan, reason, now, by=by)
        case Crashed(why=why):
            return crash(task, why, now, by=by)
        case Interrupted(why=cause):
            return interrupt(task, cause, now, by=by, plan=plan)
        case Stopped(reason="timeout", but=but):
            return fail(task, timed_out(task, own or plan, but), plan, now, by=by)
        case Stopped(reason="cancel"):
            return stop_cancelled(task, now, by=by)
        case Stopped(reason="drain"):
            return hand_back(task, now, by=by)
        case Unstarted(until=until):
            return hand_back(task, now, by=by, started=False, run_at=until)
        case Unready(why=cause):
            return hand_back(task, now, by=by, run_at=to_millis(now + TRY_RESOURCE_AGAIN), note=cause)
    return None


def _jump_finish_or_wait(
    task: Task, plan: Plan, outcome: Jumped | Finished | Waiting | Sleeping, now: datetime, by: str
) -> Task:
    match outcome:
        case Jumped(phase=phase, result=result, limit_key=key):
            moved = complete(task, plan, result, now, by=by, to=phase)
            # A key changes only here, where the slot of the old one is released in the same write.
            return moved if key is None else msgspec.structs.replace(moved, limit_key=check_text(key, "limit_key", 200))
        case Finished(result=result):
            return finish(task, result, now, by=by)
        case Waiting(name=name, awaiting=awaiting, timeout=timeout):
            return wait(task, name, awaiting, timeout, now, by=by)
        case Sleeping(name=name, for_=span):
            return sleep(task, name, span, now, by=by)


def timed_out(task: Task, plan: Plan, but: str = "") -> Failure:
    """Return the failure of an attempt that exceeded its timeout."""
    limit = plan.phase(task.phase).timeout or timedelta(0)
    minutes = limit / timedelta(minutes=1)
    spelled = f"{minutes:g} minutes" if minutes >= 1 and minutes == int(minutes) else spell_duration(limit)
    ending = f"; {but}" if but else " and was stopped"
    return failure(f"{task.phase} ran longer than {spelled}{ending}", "timeout", exception="Timeout")


def failure_of(task: Task, plan: Plan, outcome: Outcome) -> Failure | None:
    """Return the failure of an outcome, if there is one. plan: the definition whose timeout applied."""
    match outcome:
        case Failed(why=why) | Crashed(why=why):
            return why
        case Stopped(reason="timeout", but=but):
            return timed_out(task, plan, but)
    return None
