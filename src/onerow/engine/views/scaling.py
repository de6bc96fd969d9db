"""The signal for the scaling decision, read from the store without a scan."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from math import ceil

from onerow.core.errors import UnknownName
from onerow.core.filters import Filter
from onerow.core.plan import PhasePlan, Plan
from onerow.core.scaling import DEFAULT_SLOTS, PhaseSignal, ScaleSettings, Signal, WorkerSignal
from onerow.core.status import PROCESSING, WAITING
from onerow.core.suggest import did_you_mean
from onerow.engine.control import definitions
from onerow.engine.control.definitions import WORKER, Controls
from onerow.engine.control.rates import Rates
from onerow.engine.control.schedules import Scheduled
from onerow.engine.control.stats import Outcomes, middle
from onerow.engine.views.workers import WorkerLine, roll
from onerow.ports import LeaseRecord, PhaseClaim, Store

SOON = timedelta(minutes=1)
_MOST_LEASES = 50_000
_MOST_COUNTED = 100_000  # due tasks of a phase, which a target wait has to know

Place = tuple[str, PhasePlan]


def read_signal(
    store: Store,
    plans: Mapping[str, Plan],
    settings: ScaleSettings,
    *,
    scope: Collection[str] = (),
    schedules: Sequence[Scheduled] = (),
    outcomes: Mapping[tuple[str, str], Outcomes] | None = None,
) -> Signal:
    """Return the work and the workers of some phases ('pipeline' or 'pipeline.phase'; without any: all phases).

    Tasks are counted up to what all workers could run, plus one. outcomes: recent durations, needed for a target wait.
    """
    now = store.now()
    places = list(_places(plans, scope))
    named = {(pipeline, name) for pipeline, phase in places for name in phase.names}
    leases = store.leases(limit=_MOST_LEASES)
    held = [lease for lease in leases if (lease.pipeline, lease.phase) in named]
    running = Counter((lease.pipeline, lease.phase) for lease in held)
    if len(leases) == _MOST_LEASES:
        counts = store.count(Filter(statuses=frozenset({PROCESSING})))
        running = Counter({(line.pipeline, line.phase): line.count for line in counts})
    workers = roll(store.notes(WORKER), [], now)
    ahead = _ahead(workers, leases, plans)
    reader = _Reader(store, definitions.load_controls(store), settings, now, running, ahead, outcomes or {})
    with_code = [(pipeline, phase) for pipeline, phase in places if phase.has_code]
    ready = set(store.ready({(pipeline, phase.name) for pipeline, phase in with_code}, now + SOON))
    return Signal(
        at=now.timestamp(),
        phases=tuple(reader.phase(*place, has_due=(place[0], place[1].name) in ready) for place in with_code),
        workers=_workers(workers, named, held, all_busy=len(leases) == _MOST_LEASES),
        upkeep=_upkeep(store, places, schedules, held, now),
    )


def usual_slots(workers: Sequence[WorkerLine]) -> int:
    """Return the concurrency of the live workers, the smallest if they differ; without any, a worker's default."""
    return min(
        (w.concurrency for w in workers if w.alive and not w.puller and w.concurrency > 0), default=DEFAULT_SLOTS
    )


def _places(plans: Mapping[str, Plan], scope: Collection[str]) -> Iterator[Place]:
    known = {name for plan in plans.values() for name in (plan.name, *(f"{plan.name}.{p.name}" for p in plan.phases))}
    for name in scope:
        if name not in known:
            raise UnknownName(
                f"no pipeline or phase {name!r} in the store",
                fix=did_you_mean(name, known, "run its worker once, or: onerow publish APP"),
                field="phase",
            )
    for plan in plans.values():
        for phase in plan.phases:
            if not scope or plan.name in scope or f"{plan.name}.{phase.name}" in scope:
                yield plan.name, phase


class _Reader:
    """Reads one phase at a time."""

    def __init__(
        self,
        store: Store,
        controls: Controls,
        settings: ScaleSettings,
        now: datetime,
        running: Mapping[tuple[str, str], int],
        ahead: Mapping[tuple[str, str], int],
        outcomes: Mapping[tuple[str, str], Outcomes],
    ) -> None:
        self._store = store
        self._controls = controls
        self._settings = settings
        self._now = now
        self._running = running
        self._ahead = ahead
        self._outcomes = outcomes
        self._rates = Rates(store)

    def phase(self, pipeline: str, phase: PhasePlan, *, has_due: bool) -> PhaseSignal:
        phase = self._controls.in_force(pipeline, phase)
        terms = self._controls.terms(pipeline, phase, self._now)
        limit, per_key = self._controls.limits_of(pipeline, phase)
        running = sum(self._running.get((pipeline, name), 0) for name in phase.names)
        run_for = self._run_for(pipeline, phase)
        bound = self._bound(run_for, phase.batch_size)
        due = all_soon = 0
        if has_due:
            due = self._claimable(pipeline, phase.name, bound, self._now)
            all_soon = bound if due >= bound else self._claimable(pipeline, phase.name, bound, self._now + SOON)
        startable, by = self._startable(pipeline, phase, per_key, all_soon)
        return PhaseSignal(
            pipeline=pipeline,
            phase=phase.name,
            ready=due,
            soon=max(0, all_soon - due),
            running=running,
            ahead=sum(self._ahead.get((pipeline, name), 0) for name in phase.names),
            per_slot=phase.batch_size,
            limit=limit,
            startable=startable,
            limited_by=by,
            capped=all_soon >= bound,
            paused=terms is None,
            run_for=run_for,
            oldest_for=self._oldest_for(pipeline, phase.name) if due else None,
        )

    def _bound(self, run_for: float | None, per_slot: int) -> int:
        """Return up to how many due tasks are worth counting."""
        most, target = self._settings.most_slots, self._settings.target_wait
        count = most * per_slot
        if target and run_for:
            count = max(count, int(count * target / run_for) + 1)
        return max(most, min(_MOST_COUNTED, count))

    def _startable(self, pipeline: str, phase: PhasePlan, per_key: int | None, waiting: int) -> tuple[int | None, str]:
        startable, by = None, ""
        if per_key is not None and waiting:
            most = self._bound(None, phase.batch_size)
            found = self._claimable(pipeline, phase.name, most, self._now + SOON, key_slots=per_key)
            # As many as are worth counting: there may be more.
            startable, by = (None, "") if found >= most else (found, "key")
        left = self._rates.starts_left(pipeline, phase, self._now)
        if left is not None and (startable is None or left < startable):
            startable, by = left, "rate"
        return startable, by

    def _claimable(self, pipeline: str, phase: str, limit: int, by: datetime, key_slots: int | None = None) -> int:
        want = PhaseClaim(
            pipeline=pipeline, phase=phase, limit=limit, lease_for=timedelta(0), slots=None, key_slots=key_slots
        )
        return self._store.claimable(want, by)

    def _oldest_for(self, pipeline: str, phase: str) -> float | None:
        """Return how long the first task in claim order is due; the oldest, if all have one priority."""
        found = self._store.due(pipeline, phase, self._now, 1)
        return max(0.0, (self._now - found[0].run_at).total_seconds()) if found else None

    def _run_for(self, pipeline: str, phase: PhasePlan) -> float | None:
        found = self._outcomes.get((pipeline, phase.name))
        total = sum(found.run.values()) if found is not None else 0
        if found is None or not total:
            return None
        millis = sum(middle(number) * count for number, count in found.run.items())
        return max(millis / total, 1.0) / 1000


def _ahead(
    lines: Sequence[WorkerLine], leases: Sequence[LeaseRecord], plans: Mapping[str, Plan]
) -> Mapping[tuple[str, str], int]:
    """Return by phase the leases that live workers hold beyond their slots: short tasks, claimed ahead."""
    per_slot = {
        (plan.name, n): phase.batch_size for plan in plans.values() for phase in plan.phases for n in phase.names
    }
    free = {line.name: line.concurrency for line in lines if line.alive and not line.puller and line.concurrency > 0}
    held = Counter((lease.leased_by, (lease.pipeline, lease.phase)) for lease in leases if lease.leased_by in free)
    for (worker, phase), count in held.items():
        free[worker] -= ceil(count / per_slot.get(phase, 1))
    ahead: Counter[tuple[str, str]] = Counter()
    for (worker, phase), count in held.most_common():
        if free[worker] < 0 and per_slot.get(phase, 1) == 1:  # only a free slot claims a batch
            ahead[phase] += min(count, -free[worker])
            free[worker] += count
    return ahead


def _workers(
    lines: Sequence[WorkerLine], named: set[tuple[str, str]], held: Sequence[LeaseRecord], *, all_busy: bool
) -> tuple[WorkerSignal, ...]:
    busy = Counter(lease.leased_by for lease in held)
    return tuple(
        WorkerSignal(line.name, line.concurrency, max(busy[line.name], 1 if all_busy else 0), line.draining)
        for line in lines
        if line.alive and not line.puller and named.intersection(line.phases)
    )


def _upkeep(
    store: Store, places: Sequence[Place], schedules: Sequence[Scheduled], held: Sequence[LeaseRecord], now: datetime
) -> int:
    """Return how much due work needs a worker but no slot."""
    pipelines = {pipeline for pipeline, _ in places}
    expired = sum(lease.leased_until <= now for lease in held)
    crons = sum(each.pipeline in pipelines and each.pause is None and each.next <= now + SOON for each in schedules)
    waits = {(pipeline, phase.name) for pipeline, phase in places if not phase.has_code}
    due = 0
    if waits:
        due = sum(
            store.claimable(PhaseClaim(pipeline=pipeline, phase=phase, limit=1, lease_for=timedelta(0)), now)
            for pipeline, phase in store.ready(waits, now)
        )
    parked = Filter(statuses=frozenset({WAITING}), parked=True, due_before=now)
    overdue = [task for task in store.find(parked, limit=100, order="due").tasks if task.pipeline in pipelines]
    return expired + crons + due + len(overdue)
