"""Definitions in the store: what commands, faces and other languages know of pipelines without the user's code."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from onerow.core.errors import BadInput, UnknownName
from onerow.core.plan import PhasePlan, Plan
from onerow.core.times import read, spell
from onerow.ports import Note, Store

PLAN, LIMIT, PAUSE, HOLD = "pipeline", "limit", "pause", "hold"
WORKER = "worker"
"""The kind of note that is a line of the roll."""


class Pause(msgspec.Struct, frozen=True):
    """A phase (or with '*' a whole pipeline) that nobody may claim from."""

    pipeline: str
    phase: str
    by: str
    reason: str
    at: str


class Hold(msgspec.Struct, frozen=True):
    """A phase that nobody may claim from for a while, because the other side of a handler asked for it."""

    until: str
    why: str = ""
    by: str = ""  # the worker whose handler was asked


def publish(store: Store, plans: Iterable[Plan]) -> list[str]:
    """Write each definition that differs from the stored one; the names of those written."""
    stored = {note.name: note for note in store.notes(PLAN)}
    written = []
    for plan in plans:
        body = msgspec.json.decode(msgspec.json.encode(plan))  # as a store gives it back: lists, no tuples
        note = stored.get(plan.name)
        if note is None or note.body != body:
            store.write_notes([Note(PLAN, plan.name, body, note.version if note else 0)])
            written.append(plan.name)
    return written


def load_plans(store: Store) -> dict[str, Plan]:
    """All published definitions; one that newer code wrote and we can't read is left out."""
    plans = {}
    for note in store.notes(PLAN):
        try:
            plans[note.name] = msgspec.convert(note.body, Plan)
        except msgspec.ValidationError:
            continue
    return plans


class Controls(msgspec.Struct, frozen=True):
    """What operators have set: limits, pauses, holds. Read about once a second."""

    limits: dict[tuple[str, str], tuple[int | None, int | None]] = {}
    pauses: dict[tuple[str, str], Pause] = {}
    holds: dict[tuple[str, str], Hold] = {}

    def limits_of(self, pipeline: str, phase: PhasePlan) -> tuple[int | None, int | None]:
        """(at once, at once per key): an operator's, else the definition's."""
        return self.limits.get((pipeline, phase.name), (phase.concurrency, phase.per_key))

    def pause_of(self, pipeline: str, phase: str) -> Pause | None:
        return self.pauses.get((pipeline, phase)) or self.pauses.get((pipeline, "*"))

    def hold_of(self, pipeline: str, phase: str, now: datetime) -> Hold | None:
        """The hold in force."""
        hold = self.holds.get((pipeline, phase))
        return hold if hold is not None and read(hold.until) > now else None

    def held_until(self, pipeline: str, phase: str, now: datetime) -> datetime | None:
        hold = self.hold_of(pipeline, phase, now)
        return None if hold is None else read(hold.until)


def load_controls(store: Store) -> Controls:
    """The controls as they stand."""
    limits = {_pair(note.name): (note.body.get("concurrency"), note.body.get("per_key")) for note in store.notes(LIMIT)}
    pauses = {_pair(note.name): msgspec.convert(note.body, Pause) for note in store.notes(PAUSE)}
    holds = {_pair(note.name): msgspec.convert(note.body, Hold) for note in store.notes(HOLD)}
    return Controls(limits, pauses, holds)


def set_pause(store: Store, pipeline: str, phase: str, by: str, reason: str) -> None:
    body = msgspec.to_builtins(Pause(pipeline, phase, by, reason, spell(store.now())))
    overwrite(store, PAUSE, f"{pipeline}/{phase}", body)


def set_limit(store: Store, pipeline: str, phase: str, limits: dict[str, Any]) -> None:
    for field, value in limits.items():
        if value is not None and (type(value) is not int or not 1 <= value <= 10_000):
            raise BadInput(f"{field} must be a whole number from 1 to 10,000, not {value!r}", field=field)
    overwrite(store, LIMIT, f"{pipeline}/{phase}", limits)


def set_hold(store: Store, pipeline: str, phase: str, until: datetime, why: str, by: str = "") -> None:
    """Nobody claims from the phase until then; a later hold wins over an earlier one."""
    name = f"{pipeline}/{phase}"
    for _ in range(20):
        note = next((note for note in store.notes(HOLD) if note.name == name), None)
        if note is not None and note.body["until"] >= spell(until):
            return
        body = msgspec.to_builtins(Hold(spell(until), why, by))
        if store.write_notes([Note(HOLD, name, body, note.version if note else 0)])[0]:
            return


def overwrite(store: Store, kind: str, name: str, body: Any) -> None:
    """Write a note whatever it said before."""
    for _ in range(100):
        version = next((note.version for note in store.notes(kind) if note.name == name), 0)
        if store.write_notes([Note(kind, name, body, version)])[0]:
            return


def known_plan(plans: dict[str, Plan], name: str) -> Plan:
    """The plan of that name, or an error that lists those there are."""
    if name in plans:
        return plans[name]
    there = ", ".join(sorted(plans)) or "none published yet"
    raise UnknownName(
        f"no pipeline {name!r} in the store ({there}); run its worker once, or: onerow publish APP", field="pipeline"
    )


def known_phases(plan: Plan, phases: Sequence[str]) -> None:
    for phase in phases:
        if phase != "*":
            plan.phase(phase)


def _pair(name: str) -> tuple[str, str]:
    pipeline, _, phase = name.partition("/")
    return pipeline, phase
