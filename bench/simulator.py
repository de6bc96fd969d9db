"""Rate of simulated tasks, against a minimal loop over a heap that knows one queue and a number of slots."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import timedelta
from heapq import heappop, heappush
from math import log
from random import Random
from typing import ParamSpec

from bench.setting import Figure, Setting
from onerow.core.plan import PhasePlan
from onerow.core.rates import parse_rate
from onerow.simulator.arrivals import Arrivals
from onerow.simulator.durations import Durations, fixed, log_normal
from onerow.simulator.model import Phase, SimulatedPlan, Workers
from onerow.simulator.simulation import simulate

_PER_SECOND = 200
_WORKERS = 60
_SLOTS = 5
P = ParamSpec("P")


def simulator(setting: Setting) -> Iterator[Figure]:
    """Tasks per second of the simulator's fast path, with failures and deaths, against the minimal loop in the same run."""
    tasks = setting.tasks * 10
    takes = log_normal(1_000, 3_000, 0.95)
    for name, failures, dies_every in (
        ("simulator", 0.0, None),
        ("simulator, failures, deaths", 0.02, timedelta(hours=12)),
    ):
        plan = SimulatedPlan(
            name="bench",
            arrivals=Arrivals(rate=parse_rate(f"{_PER_SECOND}/s")),
            phases=(Phase(options=PhasePlan(name="work"), takes=takes, failures=failures),),
            workers=Workers(count=_WORKERS, slots=_SLOTS, starts_in=fixed(60_000), dies_every=dies_every),
            lasts=timedelta(seconds=tasks / _PER_SECOND),
            period=timedelta(minutes=10),
        )
        # Alternating, because the speed of a shared machine changes over time.
        runs = [(_rate(minimal, tasks, takes), _rate(_simulate, plan)) for _ in range(3)]
        floor, rate = (sorted(column)[1] for column in zip(*runs, strict=True))
        yield Figure(name, "none", rate, "tasks/s", floor, "minimal heap loop")


def _rate(function: Callable[P, int], *args: P.args, **kwargs: P.kwargs) -> float:
    began = time.perf_counter()
    done = function(*args, **kwargs)
    return done / (time.perf_counter() - began)


def _simulate(plan: SimulatedPlan) -> int:
    return simulate(plan).started


def minimal(tasks: int, takes: Durations) -> int:
    """Poisson arrivals, one queue, a number of slots, and a histogram of the waits; nothing else."""
    random = Random(1).random
    table, size = takes.table, len(takes.table)
    mean = 1000 / _PER_SECOND
    heap: list[tuple[float, int]] = [(0.0, 0)]
    queue: deque[float] = deque()
    waits: dict[int, int] = {}
    free, arrived, started = _WORKERS * _SLOTS, 0, 0
    while heap:
        now, kind = heappop(heap)
        if kind == 0:
            arrived += 1
            queue.append(now)
            if arrived < tasks:
                heappush(heap, (now - log(1.0 - random()) * mean, 0))
        else:
            free += 1
        while queue and free:
            free -= 1
            started += 1
            waited = int(now - queue.popleft())
            waits[waited] = waits.get(waited, 0) + 1
            heappush(heap, (now + table[int(random() * size)], 1))
    return started
