"""Compare simulations with real workers: the same arrivals and handlers of 100 ms, at several loads.

Worker processes serve a pipeline of their own on a real store; this process adds tasks at random (Poisson). The times at
which the rows became due are then the arrivals of the simulation. Two times are measured before: what a slot needs for
a task, handler and overhead together, with a backlog; and how long a task waits for a free slot.
"""

import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from uuid import uuid4

import msgspec

from onerow.core.filters import Filter
from onerow.core.plan import PhasePlan
from onerow.core.status import WAITING
from onerow.core.task import Task
from onerow.core.times import since_epoch
from onerow.engine.control import definitions
from onerow.pipelines.pipeline import Pipeline
from onerow.simulator.arrivals import Arrivals
from onerow.simulator.durations import fixed
from onerow.simulator.machine_load import MachineLoad
from onerow.simulator.model import Phase, SimulatedPlan, Workers
from onerow.simulator.simulation import simulate
from onerow.simulator.validation_worker import HANDLER_TAKES, serve_pipeline
from onerow.wiring import Queue, open_store

LOADS = (0.5, 0.8, 1.2)
PROCESSES = 2
SLOTS = 4
_TOLERANCE = {"throughput": 0.10, "backlog": 0.10, "wait p50": 0.20}
_SMALL_WAIT = 0.010
_SMALL_BACKLOG = PROCESSES * SLOTS  # as many as the workers take at once
_STOPS_WITHIN = 60.0
_SINGLE_TASKS = 30
DISTURBED = 0.02
"""A measurement during which sleeps took longer than asked by more than this share is repeated."""


class Figures(msgspec.Struct, frozen=True):
    """Tasks completed per second, tasks due and not started at the end, and the median wait in seconds."""

    throughput: float
    backlog: int
    wait_p50: float


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One figure, simulated and measured."""

    store: str
    load: float
    figure: str
    simulated: float
    measured: float
    agrees: bool
    disturbed: float = 0.0
    """The share of the time by which sleeps took longer than asked, because the machine had other work to do."""

    @property
    def difference(self) -> float | None:
        """The difference as a share of the measured value; None if that is 0."""
        return (self.simulated - self.measured) / self.measured if self.measured else None


def validate(
    url: str,
    seconds: float,
    loads: Sequence[float] = LOADS,
    progress: Callable[[str], None] = lambda text: None,
    tries: int = 5,
) -> list[Comparison]:
    """Run real workers on a store for some seconds at each load, simulate the same, and compare.

    A load is measured again, up to `tries` times, if the machine was busy with other work.
    """
    store = url.partition(":")[0]
    found: list[Comparison] = []
    with _own_pipeline(url) as (queue, pipeline):
        for load in loads:
            for tries_left in reversed(range(tries)):
                progress(f"{store}: {load:.0%} load for {seconds:g} s")
                with MachineLoad() as machine:
                    simulated, measured = _one_load(url, queue, pipeline, load, seconds)
                if machine.share <= DISTURBED or not tries_left:
                    break
                progress(f"{store}: the machine was busy with other work ({machine.share:.0%} late), so again")
            found += _compare(store, load, simulated, measured, machine.share)
    return found


def _one_load(url: str, queue: Queue, pipeline: Pipeline, load: float, seconds: float) -> tuple[Figures, Figures]:
    """Return what is simulated and what is measured at one load."""
    with _workers(url, pipeline.name):
        takes = _slot_time(queue, pipeline, max(2.0, seconds / 6))
        claims_in = _claim_time(queue, pipeline)
        # The load is of the workers as measured, so that 120 % is more than they can do.
        rate = load * PROCESSES * SLOTS / takes
        began = since_epoch(queue.store.now())
        tasks = _feed(queue, pipeline, rate, seconds)
        ended = since_epoch(queue.store.now())
    rows = [row for first in range(0, len(tasks), 500) for row in queue.store.fetch(tasks[first : first + 500])]
    figures = _simulated(rows, began, ended, takes, claims_in), _measured(rows, began, ended)
    _clear(queue, pipeline.name)
    return figures


def _simulated(rows: Sequence[Task], began: int, ended: int, takes: float, claims_in: float) -> Figures:
    plan = SimulatedPlan(
        name="validation",
        arrivals=Arrivals(times=tuple(sorted(since_epoch(row.created_at) - began for row in rows))),
        phases=(Phase(options=PhasePlan(name="work"), takes=fixed(takes * 1000)),),
        workers=Workers(
            count=PROCESSES, slots=SLOTS, starts_in=fixed(0, least=0), claims_in=timedelta(seconds=claims_in)
        ),
        lasts=timedelta(milliseconds=ended - began),
        period=timedelta(milliseconds=ended - began),
    )
    result = simulate(plan)
    return Figures(result.completed / result.lasted, result.backlog, result.wait_p50 or 0.0)


def _measured(rows: Sequence[Task], began: int, ended: int) -> Figures:
    """The handler returns when it started and ended; a task without a result by then has waited until the end."""
    waits = []
    completed = backlog = 0
    for row in rows:
        due = since_epoch(row.created_at)
        started, finished = row.results.get("work") or (ended + 1, ended + 1)
        backlog += started > ended
        completed += finished <= ended
        waits.append(max(0.0, min(started, ended) - due) / 1000)
    return Figures(completed / ((ended - began) / 1000), backlog, statistics.median(waits) if waits else 0.0)


def _compare(
    store: str, load: float, simulated: Figures, measured: Figures, disturbed: float = 0.0
) -> Iterator[Comparison]:
    for figure, one, other, small in (
        ("throughput", simulated.throughput, measured.throughput, 0.0),
        ("backlog", simulated.backlog, measured.backlog, _SMALL_BACKLOG),
        ("wait p50", simulated.wait_p50, measured.wait_p50, _SMALL_WAIT),
    ):
        agrees = abs(one - other) <= max(small, _TOLERANCE[figure] * other)
        yield Comparison(
            store=store, load=load, figure=figure, simulated=one, measured=other, agrees=agrees, disturbed=disturbed
        )


def _slot_time(queue: Queue, pipeline: Pipeline, seconds: float) -> float:
    """Return the seconds that a slot needs for a task while there is a backlog."""
    count = round(PROCESSES * SLOTS * seconds / HANDLER_TAKES)
    tasks = [task.task_id for task in queue.add_many(pipeline, [None] * count)]
    deadline = time.monotonic() + _STOPS_WITHIN + 10 * seconds
    while any(task.status is WAITING for task in queue.store.fetch(tasks[-500:])) and time.monotonic() < deadline:
        time.sleep(0.1)
    rows = [row for first in range(0, count, 500) for row in queue.store.fetch(tasks[first : first + 500])]
    ends: list[float] = sorted(row.results["work"][1] for row in rows if "work" in row.results)
    # From the end of the first round on, without the last ones, when slots have nothing left to do.
    first, last = PROCESSES * SLOTS, len(ends) - PROCESSES * SLOTS
    _clear(queue, pipeline.name)
    return max(HANDLER_TAKES, PROCESSES * SLOTS * (ends[last] - ends[first]) / 1000 / (last - first))


def _claim_time(queue: Queue, pipeline: Pipeline) -> float:
    """Return the median of the seconds that a task waits while all slots are free."""
    waits: list[float] = []
    for _ in range(_SINGLE_TASKS):
        task = queue.wait(queue.add(pipeline).task_id, timeout=_STOPS_WITHIN)
        waits.append(max(0.0, task.results["work"][0] - since_epoch(task.created_at)) / 1000)
    _clear(queue, pipeline.name)
    return statistics.median(waits)


def _feed(queue: Queue, pipeline: Pipeline, rate: float, seconds: float) -> list[str]:
    """Add tasks at random times with a mean rate; return their ids."""
    gap = random.Random(1).expovariate
    began = time.monotonic()
    at = gap(rate)
    found: list[str] = []
    while at < seconds:
        if (left := began + at - time.monotonic()) > 0:
            time.sleep(left)
        found.append(queue.add(pipeline).task_id)
        at += gap(rate)
    time.sleep(max(0.0, began + seconds - time.monotonic()))
    return found


@contextmanager
def _own_pipeline(url: str) -> Iterator[tuple[Queue, Pipeline]]:
    """Publish a pipeline with a new name; delete it and its tasks afterwards."""
    queue = Queue(open_store(url))
    pipeline = serve_pipeline(f"onerow-validation-{uuid4().hex[:12]}")
    try:
        queue.publish(pipeline)
        yield queue, pipeline
    finally:
        _clear(queue, pipeline.name)
        queue.store.drop_notes(definitions.PLAN, [pipeline.name])
        queue.close()


def _clear(queue: Queue, pipeline: str) -> None:
    own = Filter(pipeline=pipeline, statuses=frozenset({WAITING}))
    if queue.find(own, limit=1).tasks:
        queue.select(own).cancel(by="onerow simulate")
    while queue.purge(older_than=0, pipeline=pipeline):
        pass


@contextmanager
def _workers(url: str, pipeline: str) -> Iterator[None]:
    """Worker processes that are ready, until the end of the block."""
    argv = [sys.executable, "-m", "onerow.simulator.validation_worker", url, pipeline, str(SLOTS)]
    with ExitStack() as stack:
        processes = [
            stack.enter_context(subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for _ in range(PROCESSES)
        ]
        try:
            for process in processes:
                assert process.stdout is not None
                if process.stdout.readline() != "ready\n":
                    raise RuntimeError("a worker ended before it was ready; its output has the cause")
            yield
        finally:
            for process in processes:
                assert process.stdin is not None
                process.stdin.close()  # the signal to stop, also if this process is killed
            for process in processes:
                try:
                    process.wait(_STOPS_WITHIN)
                except subprocess.TimeoutExpired:
                    process.kill()
