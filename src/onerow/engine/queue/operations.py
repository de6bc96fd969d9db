"""Manual operations on tasks as values: a rule, its name and who asked; applied to one task or to many."""

import getpass
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec

from onerow.core import rules, values
from onerow.core.addition import encode_metadata
from onerow.core.errors import BadInput
from onerow.core.failure import ERROR_CLASSES, failure
from onerow.core.names import check_name
from onerow.core.plan import Plan
from onerow.core.retry import Retry
from onerow.core.status import COMPLETED, FAILED, OPEN, PROCESSING, WAITING, Status
from onerow.core.task import Task
from onerow.core.times import parse_moment
from onerow.pipelines.decoding import check_payload
from onerow.pipelines.typed import Signal

PlanOf = Callable[[str], Plan]


class BulkDefaults(NamedTuple):
    """For an operation on a query: the statuses that it means unless it names some, and whether none undoes it."""

    statuses: frozenset[Status]
    final: bool = False


BULK_DEFAULTS = {
    "retry": BulkDefaults(frozenset({FAILED})),
    "cancel": BulkDefaults(frozenset({WAITING, PROCESSING, FAILED}), final=True),
    "replay": BulkDefaults(frozenset({COMPLETED, FAILED}), final=True),
    "finish": BulkDefaults(frozenset({WAITING, FAILED}), final=True),
    "fail": BulkDefaults(frozenset({WAITING})),
    "annotate": BulkDefaults(frozenset(Status)),
    "signal": BulkDefaults(OPEN),
    "reschedule": BulkDefaults(frozenset({WAITING})),
    "set-priority": BulkDefaults(OPEN),
}
"""Operations on tasks by the name of their command; all user interfaces follow it."""


class Operation(msgspec.Struct, frozen=True):
    """One operation, ready to be applied to tasks."""

    name: str
    by: str
    rule: Callable[[Task, datetime], Task]


def cancel(by: str, note: str) -> Operation:
    who = asking(by)
    return Operation("cancel", who, lambda task, now: rules.cancel(task, now, by=who, note=note))


def fail(error: str, error_class: str, by: str, note: str) -> Operation:
    who = asking(by)
    if not error or error_class not in ERROR_CLASSES:
        raise BadInput(f"a failure needs a reason, and a class of {', '.join(ERROR_CLASSES)}", field="error")
    why = failure(error, error_class)
    return Operation("fail", who, lambda task, now: rules.fail_by_hand(task, why, now, by=who, note=note))


def retry(
    plan_of: PlanOf, by: str, note: str, policy: Retry | None = None, retry_count: int | None = None
) -> Operation:
    who = asking(by)

    def rule(task: Task, now: datetime) -> Task:
        plan = plan_of(task.pipeline)
        return rules.retry(task, plan, now, by=who, note=note, policy=policy, retry_count=retry_count)

    return Operation("retry", who, rule)


def replay(plan_of: PlanOf, phase: str | None, by: str, note: str) -> Operation:
    who = asking(by)
    return Operation(
        "replay", who, lambda task, now: rules.replay(task, plan_of(task.pipeline), phase, now, by=who, note=note)
    )


def finish(plan_of: PlanOf, phase_only: bool, by: str, note: str, result: Any = None) -> Operation:
    who = asking(by)
    text = values.encode(result, "result")

    def rule(task: Task, now: datetime) -> Task:
        return rules.finish_by_hand(
            task, plan_of(task.pipeline), now, by=who, note=note, phase_only=phase_only, result=text
        )

    return Operation("finish", who, rule)


def reschedule(run_at: datetime | str, now: datetime, by: str, note: str) -> Operation:
    who, due_at = asking(by), parse_moment(run_at, now, "run_at")
    return Operation("reschedule", who, lambda task, now: rules.reschedule(task, due_at, now, by=who, note=note))


def set_priority(priority: int, by: str, note: str) -> Operation:
    who = asking(by)
    rules.check_priority(priority)
    return Operation("set_priority", who, lambda task, now: rules.set_priority(task, priority, now, by=who, note=note))


def signal(name: str | Signal[Any], payload: Any, signal_id: str, by: str) -> Operation:
    who = asking(by)
    name, declared = (name.name, name.payload_type) if isinstance(name, Signal) else (name, None)
    check_name(name, "signal")
    text = check_payload(declared, payload)
    checked_id = values.check_text(signal_id, "signal_id", 200) or str(uuid4())
    return Operation("signal", who, lambda task, now: rules.signal(task, name, text, checked_id, now, by=who))


def annotate(metadata: dict[str, Any]) -> Operation:
    text = encode_metadata(metadata)
    return Operation("annotate", asking(""), lambda task, now: rules.annotate(task, text, now))


def asking(by: str) -> str:
    """Return who asks for an operation: the given name, else the user of this process."""
    if by:
        return values.check_text(by, "by", 200)
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
