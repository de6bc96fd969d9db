"""Sweeps: periodic, idempotent work over many rows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from time import monotonic

from onerow.core import rules
from onerow.core.filters import Filter
from onerow.core.plan import Plan
from onerow.core.status import PROCESSING, WAITING
from onerow.core.task import Task
from onerow.engine.control.definitions import WORKER
from onerow.engine.events.events import Events, events_of
from onerow.engine.queue.children import concerns
from onerow.engine.queue.compare_and_swap import apply, pages, written
from onerow.engine.queue.lease_watch import LeaseWatch
from onerow.engine.queue.rescue import rescue, rescue_ended
from onerow.identity import Identity
from onerow.ports import Move, Store

FEW_PHASES = 50
"""With at most this many phases, a claim or a sweep names all of them; with more it first asks which have due tasks."""
_PAGE = 500


class WaitPhaseSweeper:
    """Move due tasks through phases without code, expire parked tasks, and move tasks of renamed phases."""

    def __init__(self, store: Store, plans: Mapping[str, Plan], events: Events) -> None:
        self._store = store
        self._plans = plans
        self._events = events
        self._renamed_at = 0.0
        self.has_phases = True  # whether there are phases without code; updated by `tick`
        self.passed: Callable[[], None] = lambda: None  # called when tasks may have become claimable
        self.parent_or_child_changed: Callable[[Task], None] = lambda task: None

    def tick(self, now: datetime) -> float:
        """Do one round; return the seconds until the next."""
        moved = False
        for pipeline, phase in self._ready(now):
            moved |= self._pass(self._plans[pipeline], phase, now)
        moved |= self._expire(now)
        if monotonic() >= self._renamed_at:
            self._renamed_at = monotonic() + 10
            moved |= self._rename(now)
            self._release_keys(now)
        if moved:
            self.passed()
        return 1.0

    def _pass(self, plan: Plan, phase: str, now: datetime) -> bool:
        # Uses the same index as a claim, because a million tasks that are not due may be in this phase.
        look = partial(self._store.due, plan.name, phase, now, _PAGE)
        return self._sweep(look, lambda task: rules.pass_(task, plan, now), now)

    def _ready(self, now: datetime) -> Iterable[tuple[str, str]]:
        """Return the phases without code to sweep: all if they are few, else those with due tasks."""
        codeless = {
            (plan.name, phase.name): None
            for plan in self._plans.values()
            for phase in plan.phases
            if not phase.has_code
        }.keys()
        self.has_phases = bool(codeless)
        return codeless if len(codeless) <= FEW_PHASES else self._store.ready(codeless, now)

    def _expire(self, now: datetime) -> bool:
        """Expire parked tasks in one search over all pipelines, since most have none; skip unknown pipelines."""
        where = Filter(statuses=frozenset({WAITING}), parked=True, due_before=now)
        moved = False
        for tasks in pages(self._store, where, "due"):
            known = [task for task in tasks if task.pipeline in self._plans]
            moved |= bool(self._move(known, lambda task: rules.expire(task, self._plans[task.pipeline], now), now))
        return moved

    def _rename(self, now: datetime) -> bool:
        moved = False
        for plan in self._plans.values():
            old = frozenset(name for phase in plan.phases for name in phase.renamed_from)
            if old:
                where = Filter(statuses=frozenset({WAITING}), pipeline=plan.name, phases=old)
                moved |= self._sweep(self._finding(where), partial(_renamed, plan, now), now)
        return moved

    def _release_keys(self, now: datetime) -> None:
        """Release unique keys whose retention has ended, and remove tombstones, which exist only to hold a key."""
        tasks = self._store.find(Filter(held_until_before=now, hidden=True), limit=_PAGE, order="oldest").tasks
        self._store.remove([task for task in tasks if task.purged_at is not None])
        kept = [task for task in tasks if task.purged_at is None]
        if kept:
            self._store.swap([Move(task, rules.release_key(task, now)) for task in kept])

    def _finding(self, where: Filter) -> Callable[[], list[Task]]:
        return lambda: self._store.find(where, limit=_PAGE, order="due").tasks

    def _sweep(self, look: Callable[[], list[Task]], rule: Callable[[Task], Task], now: datetime) -> bool:
        moved = False
        while True:
            tasks = look()
            swept = self._move(tasks, rule, now)
            moved |= bool(swept)
            if len(tasks) < _PAGE or not swept:
                return moved

    def _move(self, tasks: Iterable[Task], rule: Callable[[Task], Task], now: datetime) -> list[Task]:
        """Apply a rule to each task that permits it, write the results, and return the written tasks."""
        moved = written(apply(self._store, tasks, rule, now))
        for task in moved:
            if concerns(task):
                self.parent_or_child_changed(task)
            for event in events_of(task):
                self._events.send(event)
        return moved


def _renamed(plan: Plan, now: datetime, task: Task) -> Task:
    return rules.rename(task, plan, now)


class Rescuer:
    """Return tasks of dead workers to waiting: after their lease was observed to end, or at once with proof of death."""

    def __init__(
        self,
        store: Store,
        identity: Identity,
        events: Events,
        watch: LeaseWatch,
        plans: Mapping[str, Plan] | None = None,
    ) -> None:
        self._store = store
        self._identity = identity
        self._events = events
        self._watch = watch
        self._plan_of = (plans or {}).get
        self.parent_or_child_changed: Callable[[Task], None] = lambda task: None

    def tick(self, now: datetime) -> float:
        """Do one round; return the seconds until the next."""
        self._rescue_proven_dead(now)
        ended = self._watch.look(now)
        by = self._identity.name
        self._notify_children_sweeper(rescue_ended(self._store, ended, now, self._events, by=by, plan_of=self._plan_of))
        return self._watch.every

    def _rescue_proven_dead(self, now: datetime) -> None:
        for note in self._store.notes(WORKER):
            if note.name == self._identity.name or not self._identity.knows_dead(note.body):
                continue
            where = Filter(statuses=frozenset({PROCESSING}), leased_by=note.name)
            while tasks := self._store.find(where, limit=_PAGE, order="oldest").tasks:
                by = self._identity.name
                rescued = rescue(self._store, tasks, now, self._events, by=by, if_dead=False, plan_of=self._plan_of)
                self._notify_children_sweeper(rescued)
                if not rescued:
                    break
            else:
                self._store.drop_notes(WORKER, [note.name])

    def _notify_children_sweeper(self, rescued: Sequence[Task]) -> None:
        for task in rescued:
            if concerns(task):
                self.parent_or_child_changed(task)


class Purger:
    """Delete tasks that ended long ago."""

    def __init__(self, purge: Callable[[], int]) -> None:
        self._purge = purge

    def tick(self, now: datetime) -> float:
        """Do one round; return the seconds until the next."""
        return 0.5 if self._purge() else 60.0
