"""Outcomes of attempts: an outcome becomes the next state of the task, and a written state becomes events."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from onerow.core import rules, values
from onerow.core.corruption import problems, quarantine
from onerow.core.durations import spell_duration
from onerow.core.errors import BadInput, IllegalMove
from onerow.core.failure import Failure, classify, failure
from onerow.core.outcomes import Finish, Jump
from onerow.core.plan import Plan
from onerow.core.rules import checkpoints
from onerow.core.status import CANCELLED, COMPLETED, FAILED
from onerow.core.task import Task
from onerow.engine.events.events import Event, TaskAdvanced, TaskCancelled, TaskCompleted, TaskFailed, TaskRetried

StopReason = Literal["cancel", "timeout", "lost", "drain"]


class Done(msgspec.Struct, frozen=True):
    """The handler returned; its result as JSON text."""

    result: str | None = None


class Jumped(msgspec.Struct, frozen=True):
    """The handler returned a Jump to a later phase."""

    phase: str
    result: str | None = None


class Finished(msgspec.Struct, frozen=True):
    """The handler returned a Finish: the task is completed."""

    result: str | None = None


class Waiting(msgspec.Struct, frozen=True):
    """The handler waits for a signal or its children, and its slot is free."""

    name: str
    awaiting: str
    timeout: timedelta | None = None


class Failed(msgspec.Struct, frozen=True):
    """The handler raised."""

    why: Failure


class Crashed(msgspec.Struct, frozen=True):
    """The isolated process of the attempt crashed."""

    why: Failure


class Interrupted(msgspec.Struct, frozen=True):
    """The process of the attempt was ended by something other than this worker; `why` names the cause."""

    why: str


class Snoozed(msgspec.Struct, frozen=True):
    """The handler asked to run again later."""

    for_: timedelta


class Stopped(msgspec.Struct, frozen=True):
    """The worker stopped the attempt."""

    reason: StopReason


class Unstarted(msgspec.Struct, frozen=True):
    """The task was claimed but never started; with `until`, it is put off to that time."""

    until: datetime | None = None


Outcome = Done | Jumped | Finished | Waiting | Failed | Crashed | Interrupted | Snoozed | Stopped | Unstarted
NOTHING = Done(None)


def outcome_of_result(result: Any) -> Outcome:
    """Return the outcome for a handler's return value."""
    if result is None:
        return NOTHING
    kind = type(result)
    if kind is Jump:
        return Jumped(result.phase, values.encode(result.result, "result"))
    if kind is Finish:
        return Finished(values.encode(result.result, "result"))
    return Done(values.encode(result, "result"))


def snoozed(error: BaseException) -> Outcome:
    """Return the outcome of a raised Snooze; a subclass may lack its duration and then fails."""
    span = getattr(error, "for_", None)
    return Snoozed(span) if isinstance(span, timedelta) else Failed(classify(error))


_UNREADABLE = frozenset({"BadPayload", "CorruptRow", "DecodeError", "ValidationError"})
"""Exceptions raised when a handler reads a corrupt column of its task."""


def decide(task: Task, plan: Plan, outcome: Outcome, now: datetime, by: str, *, own: Plan | None = None) -> Task | None:
    """Return the task after its attempt; None if the lease was lost. A corrupt row is quarantined.

    plan: the definition that the task follows. own: the definition whose timeout applied, if different.
    """
    try:
        if type(outcome) is Failed and outcome.why.exception in _UNREADABLE and problems(task):
            return quarantine(task, now, by=by)
        return _decide(task, plan, outcome, now, by, own)
    except IllegalMove:
        raise
    except Exception:
        if not problems(task):
            raise
        return quarantine(task, now, by=by)


def _decide(task: Task, plan: Plan, outcome: Outcome, now: datetime, by: str, own: Plan | None) -> Task | None:
    match outcome:
        case Done(result=result):
            try:
                return rules.complete(task, plan, result, now, by=by)
            except BadInput as error:  # the result would make the row too large
                return rules.fail(task, classify(error), plan, now, by=by)
        case Failed(why=why):
            return rules.fail(task, why, plan, now, by=by)
        case Jumped() | Finished() | Waiting():
            try:
                return _jump_finish_or_wait(task, plan, outcome, now, by)
            except BadInput as error:
                return rules.fail(task, failure(str(error), "permanent", exception="BadInput"), plan, now, by=by)
        case Snoozed(for_=span):
            return rules.snooze(task, span, now, by=by)
        case Crashed(why=why):
            return rules.crash(task, why, now, by=by)
        case Interrupted(why=cause):
            return rules.interrupt(task, cause, now, by=by, plan=plan)
        case Stopped(reason="timeout"):
            return rules.fail(task, timed_out(task, own or plan), plan, now, by=by)
        case Stopped(reason="cancel"):
            return rules.stop_cancelled(task, now, by=by)
        case Stopped(reason="drain"):
            return rules.hand_back(task, now, by=by)
        case Unstarted(until=until):
            return rules.hand_back(task, now, by=by, started=False, run_at=until)
    return None


def _jump_finish_or_wait(task: Task, plan: Plan, outcome: Jumped | Finished | Waiting, now: datetime, by: str) -> Task:
    match outcome:
        case Jumped(phase=phase, result=result):
            return rules.complete(task, plan, result, now, by=by, to=phase)
        case Finished(result=result):
            return rules.finish(task, result, now, by=by)
        case Waiting(name=name, awaiting=awaiting, timeout=timeout):
            return checkpoints.wait(task, name, awaiting, timeout, now, by=by)


def timed_out(task: Task, plan: Plan) -> Failure:
    """Return the failure of an attempt that exceeded its timeout."""
    limit = plan.phase(task.phase).timeout or timedelta(0)
    minutes = limit / timedelta(minutes=1)
    spelled = f"{minutes:g} minutes" if minutes >= 1 and minutes == int(minutes) else spell_duration(limit)
    return failure(f"{task.phase} ran longer than {spelled} and was stopped", "timeout", exception="Timeout")


def events_of(before: Task, after: Task, why: Failure | None) -> Iterator[Event]:
    """Yield the events of a move written by the lease holder."""
    if after.status is COMPLETED:
        yield TaskCompleted(after)
    elif after.status is FAILED:
        yield TaskFailed(after, why)
    elif after.status is CANCELLED:
        yield TaskCancelled(after)
    elif after.phase != before.phase:
        yield TaskAdvanced(after, before.phase)
    elif why is not None:
        yield TaskRetried(after, why)
