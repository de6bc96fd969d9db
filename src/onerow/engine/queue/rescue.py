"""Rescuing tasks of dead holders: for the worker's rescuer, and for programs that pull without a worker."""

from collections.abc import Callable, Sequence
from datetime import datetime

from msgspec.structs import replace

from onerow.core import rules
from onerow.core.filters import Filter
from onerow.core.plan import Plan
from onerow.core.status import PROCESSING
from onerow.core.task import Task
from onerow.engine.events.events import Events, TaskRescued, events_of
from onerow.engine.queue.compare_and_swap import apply, written
from onerow.ports import LeaseRecord, Store

PAGE = 500


def rescue(
    store: Store,
    tasks: Sequence[Task],
    now: datetime,
    events: Events,
    *,
    by: str,
    if_dead: bool,
    plan_of: Callable[[str], Plan | None],
) -> list[Task]:
    """Take tasks from their holders; return those taken. `if_dead`: only if the lease has expired at the write."""

    def rule(task: Task) -> Task:
        return rules.rescue(task, now, by=by, plan=plan_of(task.pipeline))

    results = apply(store, tasks, rule, now, by=by, if_dead=if_dead)
    for before, after in results:
        if isinstance(after, Task):
            events.send(TaskRescued(after, before.leased_by or ""))
            for event in events_of(after):
                events.send(event)
    return written(results)


def rescue_ended(
    store: Store,
    ended: Sequence[LeaseRecord],
    now: datetime,
    events: Events,
    *,
    by: str,
    plan_of: Callable[[str], Plan | None],
    user_id: str | None = None,
) -> list[Task]:
    """Take the tasks whose leases were observed to have ended; return those taken."""
    rescued: list[Task] = []
    for first in range(0, len(ended), PAGE):
        leases = {record.task_id: (record.token, record.leased_until) for record in ended[first : first + PAGE]}
        tasks = [
            task
            for task in store.fetch(list(leases))
            if task.status is PROCESSING
            and (task.token, task.leased_until) == leases[task.task_id]
            and user_id in (None, task.user_id)
        ]
        rescued += rescue(store, tasks, now, events, by=by, if_dead=True, plan_of=plan_of)
    return rescued


def rescue_all(
    store: Store,
    where: Filter,
    ended_before: datetime,
    events: Events,
    *,
    by: str,
    plan_of: Callable[[str], Plan | None],
) -> list[Task]:
    """Take every matching task whose lease ended before the given time; return those taken."""
    rescued: list[Task] = []
    dead = replace(where, statuses=frozenset({PROCESSING}), lease_ended_before=ended_before)
    while True:
        found = store.find(dead, limit=PAGE, order="oldest").tasks
        taken = rescue(store, found, store.now(), events, by=by, if_dead=True, plan_of=plan_of)
        rescued += taken
        if len(found) < PAGE or not taken:
            return rescued
