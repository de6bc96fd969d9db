"""Rules for calls of a running handler: record a step, take a signal, spawn children."""

from datetime import datetime
from typing import Any

import msgspec

from onerow.core import signals
from onerow.core.rules.attempts import report
from onerow.core.steps import Record, records, with_record
from onerow.core.task import Task
from onerow.core.times import spell

_encode = msgspec.json.Encoder().encode


def remember(task: Task, name: str, result: str, now: datetime, **changes: Any) -> Task:
    """Store the result of a step (JSON text) for later attempts of this phase."""
    record = Record(at=spell(now), result=msgspec.Raw(result.encode()))
    return report(task, now, steps=with_record(task, name, record), **changes)


def take_signal(task: Task, name: str, signal: str, now: datetime) -> Task | None:
    """Store the first signal of this name as the result of a wait; return None if there is nothing to take."""
    known = records(task).get(name)
    if known is not None and not known.open:
        return None  # taken by an earlier call whose answer was lost
    taken = signals.take(task.signals_json, signal, now)
    return None if taken is None else remember(task, name, taken[0], now, signals_json=taken[1])


def spawning(task: Task, name: str, now: datetime) -> Task | None:
    """Record the start time of a spawn before its children are added, so that later queries find all of them."""
    if name in records(task):
        return None
    # `children` is not None from now on, so that a cancel looks for children.
    return remember(task, name, "null", now, children=task.children or 0)


def spawned(task: Task, name: str, count: int, now: datetime) -> Task:
    """Record that all children of one spawn are stored, and add their number to the expected children."""
    begun = records(task).get(name)
    known = (begun.value or {}).get("count", 0) if begun else 0  # set if an earlier call's answer was lost
    record = Record(at=begun.at if begun else spell(now), result=msgspec.Raw(_encode({"count": count})))
    children = (task.children or 0) - known + count
    return report(task, now, steps=with_record(task, name, record), children=children)
