"""A pipeline as data: what the store keeps of it, and all that the rules need to know of it."""

from datetime import timedelta
from functools import cached_property
from typing import Any, Literal

import msgspec

from onerow.core.errors import UnknownName
from onerow.core.retry import Retry
from onerow.core.schedule import Cron

Kind = Literal["run", "batch", "command", "wait_until", "wait_for", "wait_children"]

DEFAULT_TIMEOUT = timedelta(minutes=15)
DEFAULT_LEASE = timedelta(seconds=30)


class PhasePlan(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One phase as data."""

    name: str
    kind: Kind = "run"
    concurrency: int | None = None  # at once, over all workers
    per_key: int | None = None  # at once for one limit_key
    retry: Retry = Retry()
    timeout: timedelta | None = DEFAULT_TIMEOUT  # of wait_for: how long it waits
    lease: timedelta = DEFAULT_LEASE
    field: str = ""  # wait_until: the payload's field with the time
    signal: str = ""  # wait_for: the signal's name
    on_timeout: str = ""  # wait_for, wait_children: the phase to go on with when the wait is over
    all_must_succeed: bool = False  # wait_children: a child that did not fails the task
    renamed_from: tuple[str, ...] = ()
    rate: str = ""  # '60/min', over all workers
    rate_per_key: str = ""  # the same for each limit_key
    batch_size: int = 1
    batch_within: timedelta = timedelta(0)
    isolated: bool = False
    memory: int | None = None  # what one attempt takes of its host, in bytes
    cpus: float | None = None  # the same, in cores
    retired: bool = False  # see `followed`: only older code knows this phase, and no task is sent to it

    @property
    def rated(self) -> bool:
        return bool(self.rate or self.rate_per_key)

    @property
    def has_code(self) -> bool:
        return self.kind in ("run", "batch", "command")


class Plan(msgspec.Struct, frozen=True, omit_defaults=True, dict=True, kw_only=True):
    """A pipeline as data: its phases in order."""

    name: str
    phases: tuple[PhasePlan, ...]
    title: str = ""
    code: str = ""  # version of the user's code, as they named it
    payload_schema: dict[str, Any] | None = None
    required: tuple[str, ...] = ()  # payload fields that must be there
    crons: tuple[Cron, ...] = ()

    @cached_property
    def _place(self) -> dict[str, int]:
        place = {}
        for index, phase in enumerate(self.phases):
            for old in phase.renamed_from:
                place[old] = index
        place.update({phase.name: index for index, phase in enumerate(self.phases)})
        return place

    @cached_property
    def timed(self) -> tuple[PhasePlan, ...]:
        """The phases whose time stands in the payload."""
        return tuple(phase for phase in self.phases if phase.kind == "wait_until")

    @property
    def first(self) -> PhasePlan:
        return next(phase for phase in self.phases if not phase.retired)

    def knows(self, name: str) -> bool:
        return name in self._place

    def position(self, name: str) -> int:
        """Where a phase stands, by its name or a former one."""
        try:
            return self._place[name]
        except KeyError:
            names = ", ".join(phase.name for phase in self.phases)
            raise UnknownName(
                f"pipeline {self.name!r} has no phase {name!r}; its phases are {names}", field="phase"
            ) from None

    def phase(self, name: str) -> PhasePlan:
        return self.phases[self.position(name)]

    def after(self, name: str) -> PhasePlan | None:
        """The phase that follows, or None after the last."""
        index = self.position(name) + 1
        while index < len(self.phases) and self.phases[index].retired:
            index += 1
        return self.phases[index] if index < len(self.phases) else None

    def names_from(self, name: str) -> frozenset[str]:
        """The names, former ones included, of a phase and all that follow it."""
        here = self.position(name)
        return frozenset(known for known, index in self._place.items() if index >= here)


def followed(own: Plan, published: Plan) -> Plan:
    """The definition that tasks follow where the code at hand has another: the published one.

    Phases that only the code at hand knows keep their place, marked as retired: a task that stands at one of them goes
    on with what follows the last phase before it that both definitions know, so that no published phase is skipped.
    """
    if own == published:
        return own
    phases = list(published.phases)
    place = 0
    for phase in own.phases:
        if published.knows(phase.name):
            place = phases.index(published.phase(phase.name)) + 1
        else:
            phases.insert(place, msgspec.structs.replace(phase, retired=True, renamed_from=()))
            place += 1
    return msgspec.structs.replace(published, phases=tuple(phases))
