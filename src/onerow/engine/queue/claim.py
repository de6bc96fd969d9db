"""Claims by code that is not a handler: limits, pauses, holds and rates apply here too."""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from time import monotonic
from uuid import uuid4

from onerow.core.errors import BadInput
from onerow.core.failure import Classes
from onerow.core.filters import Filter
from onerow.core.plan import DEFAULT_LEASE, PhasePlan, Plan
from onerow.core.status import WAITING
from onerow.core.task import Task
from onerow.engine import import_guard
from onerow.engine.control import definitions
from onerow.engine.control.rates import Rates, give_back
from onerow.engine.queue.compare_and_swap import find_task, lease_lost
from onerow.engine.queue.lease import Leased, Leases
from onerow.engine.queue.scope import Scope, followed_plan, phase_of, plan_of
from onerow.pipelines.pipeline import Pipeline
from onerow.ports import Claim, PhaseClaim


def pull(
    scope: Scope,
    pipeline: Pipeline | str,
    phase: str | None,
    *,
    limit: int,
    ids: Sequence[str] | None,
    lease_for: timedelta,
    worker: str,
) -> Leases:
    """Claim due tasks of one phase (default: the first), as published now."""
    plan, wanted = phase_of(scope, pipeline, phase)
    import_guard.check("claims tasks")
    if not wanted.has_code:
        raise BadInput(f"phase {wanted.name!r} has no code: its tasks only wait", field="phase")
    if type(limit) is not int or not 1 <= limit <= 10_000:
        raise BadInput(f"limit must be a whole number from 1 to 10,000, not {limit!r}", field="limit")
    if lease_for < timedelta(milliseconds=100):
        raise BadInput("lease_for must be at least 100 ms", field="lease_for")
    sent_at = monotonic()
    tasks = _claim(scope, plan, wanted, limit, ids, lease_for, worker or f"pull-{uuid4().hex[:12]}")
    follow = partial(followed_plan, scope, plan)
    errors = _errors_of(scope, pipeline, wanted)
    return Leases(scope.store, follow, tasks, lease_for, sent_at, scope.events, scope.masker, errors, scope.retention)


def _errors_of(scope: Scope, pipeline: Pipeline | str, phase: PhasePlan) -> Sequence[Classes]:
    """Return the classifications of exceptions of a phase; none if only the pipeline's name is known."""
    found = scope.pipelines.get(pipeline) if isinstance(pipeline, str) else pipeline
    if found is None:
        return ()
    return found.handlers[phase.name].errors if phase.name in found.handlers else found.errors


def _claim(
    scope: Scope,
    plan: Plan,
    phase: PhasePlan,
    limit: int,
    ids: Sequence[str] | None,
    lease_for: timedelta,
    worker: str,
) -> list[Task]:
    store = scope.store
    now = store.now()
    controls = definitions.load_controls(store)
    phase = controls.in_force(plan.name, phase)
    terms = controls.terms(plan.name, phase, now)
    rates = Rates(store)
    free = rates.starts_left(plan.name, phase, now)
    count = limit if free is None else min(limit, free)
    if terms is None or count == 0:
        return []
    if scope.user_id is not None:
        ids = _ids_of_user(scope, plan, phase, limit, ids)
    wanted = PhaseClaim(
        pipeline=plan.name, phase=phase.name, limit=count, lease_for=lease_for, slots=terms[0], key_slots=terms[1]
    )
    tasks = store.claim(Claim(worker, [wanted], ids))
    if tasks and phase.rated:
        tasks, put_off = rates.admit(plan.name, phase, tasks)
        store.swap([give_back(task, until, now, worker) for task, until in put_off])
    return tasks


def _ids_of_user(scope: Scope, plan: Plan, phase: PhasePlan, limit: int, ids: Sequence[str] | None) -> Sequence[str]:
    """Return the ids of the scope's user, among the given ids or among the due tasks."""
    if ids is not None:
        return [task.task_id for task in scope.store.fetch(ids) if task.user_id == scope.user_id]
    due = Filter(
        statuses=frozenset({WAITING}),
        pipeline=plan.name,
        phases=frozenset({phase.name}),
        parked=False,
        due_before=scope.store.now(),
    )
    return [task.task_id for task in scope.find(due, limit=max(100, limit), order="due").tasks]


def held_lease(scope: Scope, task_id: str, token: int, lease_for: timedelta | None = None) -> Leased:
    """Return the lease that a program without a Queue holds by its token; raise LeaseLost if another holds the task.

    A task that was settled with this token is accepted: the answer to the program may have been lost, and settling it
    again changes nothing. lease_for: the phase's lease by default.
    """
    task = find_task(scope.store, task_id, scope.user_id)
    if task.token != token:
        raise lease_lost(task)
    plan = plan_of(scope, task.pipeline)
    span = plan.phase(task.phase).lease if lease_for is None and plan.knows(task.phase) else lease_for or DEFAULT_LEASE
    follow = partial(followed_plan, scope, plan)
    return Leased(scope.store, follow, task, span, monotonic(), scope.events, scope.masker)
