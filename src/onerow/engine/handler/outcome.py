"""What a finished attempt means: an outcome becomes a move, and a move that landed becomes events."""

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
    """The handler returned and named a later phase to go on with."""

    phase: str
    result: str | None = None


class Finished(msgspec.Struct, frozen=True):
    """The handler returned and said that nothing more is to be done."""

    result: str | None = None


class Waiting(msgspec.Struct, frozen=True):
    """The handler waits for something from outside and gave its slot up."""

    name: str
    awaiting: str
    timeout: timedelta | None = None


class Failed(msgspec.Struct, frozen=True):
    """The handler raised."""

    why: Failure


class Crashed(msgspec.Struct, frozen=True):
    """The isolated process in which it ran died by itself."""

    why: Failure


class Interrupted(msgspec.Struct, frozen=True):
    """The process in which it ran was ended from outside, and not by this worker; says by what."""

    why: str


class Snoozed(msgspec.Struct, frozen=True):
    """The handler asked to come back later."""

    for_: timedelta


class Stopped(msgspec.Struct, frozen=True):
    """We ended the work."""

    reason: StopReason


class Unstarted(msgspec.Struct, frozen=True):
    """Claimed, and never begun; with a time, it is put off until then."""

    until: datetime | None = None


Outcome = Done | Jumped | Finished | Waiting | Failed | Crashed | Interrupted | Snoozed | Stopped | Unstarted
NOTHING = Done(None)


def outcome_of_result(result: Any) -> Outcome:
    """What it means that a handler returned."""
    if result is None:
        return NOTHING
    kind = type(result)
    if kind is Jump:
        return Jumped(result.phase, values.encode(result.result, "result"))
    if kind is Finish:
        return Finished(values.encode(result.result, "result"))
    return Done(values.encode(result, "result"))


def snoozed(error: BaseException) -> Outcome:
    """What it means that a handler raised Snooze; a subclass may not have set its time."""
    span = getattr(error, "for_", None)
    return Snoozed(span) if isinstance(span, timedelta) else Failed(classify(error))


_UNREADABLE = frozenset({"BadPayload", "CorruptRow", "DecodeError", "ValidationError"})
"""Exceptions that a handler meets when it reads a column of its task that can't be read."""


def decide(task: Task, plan: Plan, outcome: Outcome, now: datetime, by: str, *, own: Plan | None = None) -> Task | None:
    """The task after its attempt; None when it is not ours to say. A row that can't be read is quarantined.

    plan: the definition that the task follows. own: the one by whose times it ran, where that is another.
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
                return rules.advance(task, plan, result, now, by=by)
            except BadInput as error:  # a result that would make the row too large
                return rules.fail(task, classify(error), plan, now, by=by)
        case Failed(why=why):
            return rules.fail(task, why, plan, now, by=by)
        case Jumped() | Finished() | Waiting():
            try:
                return _in_another_way(task, plan, outcome, now, by)
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


def _in_another_way(task: Task, plan: Plan, outcome: Jumped | Finished | Waiting, now: datetime, by: str) -> Task:
    match outcome:
        case Jumped(phase=phase, result=result):
            return rules.advance(task, plan, result, now, by=by, to=phase)
        case Finished(result=result):
            return rules.complete(task, result, now, by=by)
        case Waiting(name=name, awaiting=awaiting, timeout=timeout):
            return checkpoints.wait(task, name, awaiting, timeout, now, by=by)


def timed_out(task: Task, plan: Plan) -> Failure:
    """The failure of work that ran too long; names the phase and its time."""
    limit = plan.phase(task.phase).timeout or timedelta(0)
    minutes = limit / timedelta(minutes=1)
    spelled = f"{minutes:g} minutes" if minutes >= 1 and minutes == int(minutes) else spell_duration(limit)
    return failure(f"{task.phase} ran longer than {spelled} and was stopped", "timeout", exception="Timeout")


def events_of(before: Task, after: Task, why: Failure | None) -> Iterator[Event]:
    """The events of a move that a holder made."""
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
