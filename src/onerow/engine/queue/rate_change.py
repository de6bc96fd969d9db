"""A change of a rate per key: tasks that the slower rate had put off become due."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from onerow.core import rules
from onerow.core.filters import Filter, cursor_of
from onerow.core.plan import PhasePlan
from onerow.core.rates import Rate, is_faster, parse_rate
from onerow.core.status import WAITING
from onerow.engine.control import definitions
from onerow.ports import Move, Store

_PAGE = 500
_AFTER_ALL_IDS = "\U0010ffff"


@contextmanager
def faster_rate(store: Store, pipeline: str, phase: PhasePlan) -> Iterator[None]:
    """Make tasks due that a rate per key has put off, if the body of the `with` statement makes that rate faster."""
    before = _rate_per_key(store, pipeline, phase)
    yield
    if not is_faster(_rate_per_key(store, pipeline, phase), before):
        return
    if definitions.has_workers(store, [pipeline]):
        # A worker that has not read the new rate yet would put the tasks off again.
        time.sleep(definitions.BINDS_AFTER.total_seconds())
    _release(store, pipeline, phase, store.now())


def _rate_per_key(store: Store, pipeline: str, phase: PhasePlan) -> Rate | None:
    rate = definitions.load_controls(store).in_force(pipeline, phase).rate_per_key
    return parse_rate(rate) if rate else None


def _release(store: Store, pipeline: str, phase: PhasePlan, now: datetime) -> None:
    where = Filter(statuses=frozenset({WAITING}), parked=False, pipeline=pipeline, phases=frozenset(phase.names))
    after: str | None = cursor_of((now, _AFTER_ALL_IDS))
    while after is not None:
        page = store.find(where, limit=_PAGE, order="due", after=after)
        # Another writer may win a race for a task: it has decided when the task is due.
        store.swap([Move(task, rules.release(task, now)) for task in page.tasks if rules.was_put_off(task, now)])
        after = page.next
