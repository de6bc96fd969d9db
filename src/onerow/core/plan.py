"""A pipeline as data, as the store keeps it and the rules use it."""

from datetime import timedelta
from functools import cached_property
from typing import Any, Literal

import msgspec

from onerow.core.errors import UnknownName
from onerow.core.labels import Labels
from onerow.core.retry import Retry
from onerow.core.schedule import Cron
from onerow.core.suggest import did_you_mean

Kind = Literal["run", "batch", "command", "wait_until", "wait_for", "wait_children"]
CODE_KINDS = ("run", "batch", "command")
"""The kinds of phases whose tasks workers run; tasks pass the other phases without code."""

DEFAULT_TIMEOUT = timedelta(minutes=15)
DEFAULT_LEASE = timedelta(seconds=30)


class PhasePlan(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One phase as data."""

    name: str
    kind: Kind = "run"
    concurrency: int | None = None  # running tasks, over all workers
    per_key: int | None = None  # running tasks of one limit_key
    retry: Retry = Retry()
    timeout: timedelta | None = DEFAULT_TIMEOUT  # of wait_for: how long it waits
    lease: timedelta = DEFAULT_LEASE
    field: str = ""  # wait_until: the payload field that holds the time
    signal: str = ""  # wait_for: the signal's name
    on_timeout: str = ""  # wait_for, wait_children: the phase that follows a timeout
    all_must_succeed: bool = False  # wait_children: the task fails if a child did not complete
    renamed_from: tuple[str, ...] = ()
    rate: str = ""  # '60/min', over all workers
    rate_per_key: str = ""  # the same for each limit_key
    batch_size: int = 1
    batch_within: timedelta = timedelta(0)
    isolated: bool = False
    retired: bool = False  # see `followed`: only older code knows this phase, and no task enters it

    @property
    def names(self) -> tuple[str, ...]:
        """The present name and the former ones; what operators set under any of them applies."""
        return self.name, *self.renamed_from

    @property
    def rated(self) -> bool:
        return bool(self.rate or self.rate_per_key)

    @property
    def has_code(self) -> bool:
        return self.kind in CODE_KINDS


class Plan(msgspec.Struct, frozen=True, omit_defaults=True, dict=True, kw_only=True):
    """A pipeline as data: its phases in order."""

    name: str
    phases: tuple[PhasePlan, ...]
    title: str = ""
    code: str = ""  # the user's version of the code
    payload_schema: dict[str, Any] | None = None
    required: tuple[str, ...] = ()  # required payload fields
    crons: tuple[Cron, ...] = ()
    keep: dict[str, timedelta] = {}  # status of ended tasks → the age at which they are deleted
    labels: Labels | None = None  # omitted from the stored definition if there are none

    @cached_property
    def _positions(self) -> dict[str, int]:
        positions = {}
        for index, phase in enumerate(self.phases):
            for old in phase.renamed_from:
                positions[old] = index
        positions.update({phase.name: index for index, phase in enumerate(self.phases)})
        return positions

    @cached_property
    def timed(self) -> tuple[PhasePlan, ...]:
        """The phases whose due time is a payload field."""
        return tuple(phase for phase in self.phases if phase.kind == "wait_until")

    @property
    def first(self) -> PhasePlan:
        return next(phase for phase in self.phases if not phase.retired)

    def knows(self, name: str) -> bool:
        return name in self._positions

    def position(self, name: str) -> int:
        """Return the index of a phase by its present or a former name; raise UnknownName."""
        try:
            return self._positions[name]
        except KeyError:
            raise UnknownName(
                f"pipeline {self.name!r} has no phase {name!r}", fix=did_you_mean(name, self._positions), field="phase"
            ) from None

    def phase(self, name: str) -> PhasePlan:
        return self.phases[self.position(name)]

    def after(self, name: str) -> PhasePlan | None:
        """Return the next phase, or None after the last."""
        index = self.position(name) + 1
        while index < len(self.phases) and self.phases[index].retired:
            index += 1
        return self.phases[index] if index < len(self.phases) else None

    def names_from(self, name: str) -> frozenset[str]:
        """Return the present and former names of a phase and of all later phases."""
        here = self.position(name)
        return frozenset(known for known, index in self._positions.items() if index >= here)


def followed(own: Plan, published: Plan) -> Plan:
    """Return the published definition, with the phases that only this process's code (`own`) knows added as retired.

    A retired phase keeps its position after the last phase before it that both definitions know. A task at a retired
    phase continues with the published phase that follows this position, so that no published phase is skipped.
    """
    if own == published:
        return own
    phases = list(published.phases)
    position = 0
    for phase in own.phases:
        if published.knows(phase.name):
            position = phases.index(published.phase(phase.name)) + 1
        else:
            phases.insert(position, msgspec.structs.replace(phase, retired=True, renamed_from=()))
            position += 1
    return msgspec.structs.replace(published, phases=tuple(phases))
