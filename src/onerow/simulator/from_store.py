"""A plan from a store: its definitions, limits, workers, and the statistics of the last day."""

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from onerow.core.errors import BadInput, UnknownName
from onerow.core.plan import PhasePlan, Plan
from onerow.core.suggest import did_you_mean
from onerow.engine.control.definitions import Definitions, load_controls
from onerow.engine.control.stats import Outcomes, middle
from onerow.engine.queue.queue import Queue
from onerow.engine.views import Views
from onerow.simulator.arrivals import Arrivals, counted
from onerow.simulator.durations import fixed, measured
from onerow.simulator.model import Phase, SimulatedPlan, Workers

_DAY = timedelta(days=1)
_MINUTE = timedelta(minutes=1)
_MINUTE_MS = 60_000
Minutes = Mapping[str, Mapping[tuple[str, str], Outcomes]]


def measured_plan(queue: Queue, pipeline: str | None) -> SimulatedPlan:
    """Return what the store knows about a pipeline as a plan: the last day again, with the present workers.

    A task counts as an arrival in the minute in which its first phase ended. Limits per key are left out, because the
    statistics don't know keys.
    """
    plan = _definition(queue, pipeline)
    if not any(phase.has_code for phase in plan.phases):
        raise BadInput(f"no phase of {plan.name} runs code, so no worker is needed", field="pipeline")
    minutes = Views(queue).minutes(_DAY)
    totals: dict[str, Outcomes] = {}
    for by_phase in minutes.values():
        for (name, phase), outcomes in by_phase.items():
            if name == plan.name:
                totals.setdefault(phase, Outcomes(run={}, wait={})).add(outcomes)
    phases = tuple(
        _phase(plan, phase, totals.get(phase.name, Outcomes()), queue) for phase in plan.phases if phase.has_code
    )
    return SimulatedPlan(
        name=plan.name,
        arrivals=_arrivals(minutes, plan.name, phases[0].name),
        phases=phases,
        workers=_workers(queue, plan.name),
        lasts=_DAY,
        period=timedelta(hours=1),
    )


def _definition(queue: Queue, pipeline: str | None) -> Plan:
    store = queue.store
    definitions = Definitions(lambda: store)
    definitions.refresh()
    names = definitions.names()
    if pipeline is None:
        if len(names) != 1:
            known = f"it has {', '.join(names)}" if names else "it has none"
            raise BadInput(
                f"the store must have one pipeline, and {known}", fix="name one with --pipeline", field="pipeline"
            )
        pipeline = names[0]
    found = definitions.of(pipeline)
    if found is None:
        raise UnknownName(f"no pipeline {pipeline!r} in the store", fix=did_you_mean(pipeline, names), field="pipeline")
    return found


def _phase(plan: Plan, phase: PhasePlan, outcomes: Outcomes, queue: Queue) -> Phase:
    if not outcomes.run:
        raise BadInput(
            f"no attempt of {plan.name}.{phase.name} ended in the last day, so its times are unknown",
            fix="let a worker run some tasks, or write arrivals and phases into a plan file and leave out --from-store",
            field="phases",
        )
    options = load_controls(queue.store).in_force(plan.name, phase)
    takes: Counter[int] = Counter()
    for number, count in outcomes.run.items():
        takes[max(1, middle(number))] += count
    failed = outcomes.failed + outcomes.retried
    ended = failed + outcomes.done
    return Phase(
        options=replace(options, per_key=None, rate_per_key="", kind="run", renamed_from=()),
        takes=measured(takes),
        failures=failed / ended if ended else 0.0,
    )


def _arrivals(minutes: Minutes, pipeline: str, first_phase: str) -> Arrivals:
    counts = []
    start: datetime | None = None
    for minute in sorted(minutes):
        outcomes = minutes[minute].get((pipeline, first_phase))
        if outcomes is None:
            continue
        moment = datetime.fromisoformat(minute).replace(tzinfo=UTC)
        start = start or moment
        at = (moment - start) // _MINUTE * _MINUTE_MS
        counts.append((at, at + _MINUTE_MS, float(outcomes.done + outcomes.failed + outcomes.cancelled)))
    return Arrivals(segments=counted(counts))


def _workers(queue: Queue, pipeline: str) -> Workers:
    alive = [
        worker
        for worker in Views(queue).workers()
        if worker.alive and not worker.puller and any(name == pipeline for name, _ in worker.phases)
    ]
    slots = max((worker.concurrency for worker in alive), default=16)
    return Workers(count=len(alive), slots=slots, starts_in=fixed(0, least=0))
