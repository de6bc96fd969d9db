"""The moves that a handler makes from inside: steps it remembers, signals it takes, waits that free its slot."""

from datetime import datetime, timedelta
from typing import Any

import msgspec

from onerow.core import rules, signals
from onerow.core.steps import Record, records, with_record
from onerow.core.task import Task
from onerow.core.times import read, spell, to_millis

_encode = msgspec.json.Encoder().encode


def remember(task: Task, name: str, result: str, now: datetime, **changes: Any) -> Task:
    """A step is done: what it returned (JSON text) is kept for every later attempt of this phase."""
    record = Record(at=spell(now), result=msgspec.Raw(result.encode()))
    return rules.report(task, now, steps=with_record(task, name, record), **changes)


def take_signal(task: Task, name: str, signal: str, now: datetime) -> Task | None:
    """A wait is over: the first signal of that name becomes what it returned; None when there is nothing to take."""
    known = records(task).get(name)
    if known is not None and not known.open:
        return None  # taken already; only the answer was lost
    taken = signals.take(task.signals_json, signal, now)
    return None if taken is None else remember(task, name, taken[0], now, signals_json=taken[1])


def spawning(task: Task, name: str, now: datetime) -> Task | None:
    """Children are about to be made: the time is remembered first, so that later looks find all of them."""
    if name in records(task):
        return None
    # From now on there may be children, and a cancel must look for them.
    return remember(task, name, "null", now, children=task.children or 0)


def spawned(task: Task, name: str, count: int, now: datetime) -> Task:
    """All children of one spawn are in the store; the parent expects so many more."""
    begun = records(task).get(name)
    known = (begun.value or {}).get("count", 0) if begun else 0  # written before, when only the answer was lost
    record = Record(at=begun.at if begun else spell(now), result=msgspec.Raw(_encode({"count": count})))
    children = (task.children or 0) - known + count
    return rules.report(task, now, steps=with_record(task, name, record), children=children)


def wait(task: Task, name: str, awaiting: str, timeout: timedelta | None, now: datetime, *, by: str = "") -> Task:
    """An attempt waits for something from outside; the deadline counts from the first time it did."""
    known = records(task).get(name)
    if known is not None and known.open:
        until = read(known.until) if known.until else None
    else:
        until = None if timeout is None else to_millis(now + timeout)
    record = Record(at=spell(now), awaiting=awaiting, until=spell(until) if until else "")
    return rules.park(task, awaiting, until, now, by=by, steps_json=with_record(task, name, record))
