"""Claims by code that is not a handler: limits, pauses, holds and rates apply here too."""

from collections.abc import Sequence
from datetime import timedelta
from uuid import uuid4

from onerow.core.plan import PhasePlan, Plan
from onerow.core.status import WAITING
from onerow.core.task import Task
from onerow.engine.control import definitions
from onerow.engine.control.rates import Rates, give_back
from onerow.ports import Claim, Filter, PhaseClaim, Store


def pull(
    store: Store,
    plan: Plan,
    phase: PhasePlan,
    *,
    limit: int,
    ids: Sequence[str] | None,
    lease_for: timedelta,
    worker: str,
    user: str | None,
) -> list[Task]:
    """Claim due tasks of one phase, optionally of one user only."""
    now = store.now()
    if user is not None:
        ids = _ids_of_user(store, plan, phase, limit, ids, user)
    name = worker or f"pull-{uuid4().hex[:12]}"
    controls = definitions.load_controls(store)
    if (
        controls.pause_of(plan.name, phase.name) is not None
        or controls.held_until(plan.name, phase.name, now) is not None
    ):
        return []
    slots, key_slots = controls.limits_of(plan.name, phase)
    rates = Rates(store)
    free = rates.starts_left(plan.name, phase, now)
    count = limit if free is None else min(limit, free)
    if count == 0:
        return []
    phase_claim = PhaseClaim(
        pipeline=plan.name, phase=phase.name, limit=count, lease_for=lease_for, slots=slots, key_slots=key_slots
    )
    tasks = store.claim(Claim(name, [phase_claim], ids))
    if tasks and phase.rated:
        tasks, put_off = rates.admit(plan.name, phase, tasks)
        store.swap([give_back(task, until, now, name) for task, until in put_off])
    return tasks


def _ids_of_user(
    store: Store, plan: Plan, phase: PhasePlan, limit: int, ids: Sequence[str] | None, user: str
) -> Sequence[str]:
    """Return the ids of one user's tasks, among the given ids or among the due tasks."""
    if ids is not None:
        return [task.task_id for task in store.fetch(ids) if task.user_id == user]
    due = Filter(
        statuses=frozenset({WAITING}),
        pipeline=plan.name,
        phases=frozenset({phase.name}),
        parked=False,
        due_before=store.now(),
        user_id=user,
    )
    return [task.task_id for task in store.find(due, limit=max(100, limit), order="due").tasks]
