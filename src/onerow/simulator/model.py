"""A plan to simulate, as data."""

from datetime import timedelta

import msgspec

from onerow.core.plan import PhasePlan, Plan
from onerow.core.scaling import ScaleSettings
from onerow.simulator.arrivals import Arrivals
from onerow.simulator.durations import Durations

MOST_SLOTS = 10_000_000
"""Of all workers together; a simulation has an entry in memory for each free one."""


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """A phase: its options as in a pipeline, how long attempts take, and which share of them fails."""

    options: PhasePlan
    takes: Durations
    failures: float = 0.0

    @property
    def name(self) -> str:
        return self.options.name


class Workers(msgspec.Struct, frozen=True, kw_only=True):
    """Workers: how many there are at the start, and how they come and go."""

    count: int
    slots: int
    starts_in: Durations
    claims_in: timedelta = timedelta(0)  # from the time at which a task is due until a free slot runs it
    dies_every: timedelta | None = None  # mean life; None: they don't die
    cost_per_hour: float = 0.0


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the scaling decision, and how often it is made."""

    settings: ScaleSettings
    every: timedelta = timedelta(seconds=30)


class SimulatedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a simulation needs; the same plan gives the same answer."""

    name: str
    arrivals: Arrivals
    phases: tuple[Phase, ...]
    workers: Workers
    scaling: Scaling | None = None  # None: the number of workers is fixed, and dead ones are replaced
    lasts: timedelta = timedelta(days=1)
    period: timedelta = timedelta(hours=1)  # of the figures over time
    seed: int = 1
    keys: tuple[float, ...] = ()  # weights of the limit keys; without them tasks have no key

    @property
    def pipeline(self) -> Plan:
        return Plan(name=self.name, phases=tuple(phase.options for phase in self.phases))

    @property
    def end(self) -> int:
        """The end of the simulation in milliseconds."""
        return millis(self.lasts)


def millis(span: timedelta) -> int:
    return round(span / timedelta(milliseconds=1))
