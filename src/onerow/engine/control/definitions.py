"""Definitions and controls in the store, for commands, user interfaces and programs without the pipeline's code."""

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from onerow.core.errors import BadInput, UnknownName
from onerow.core.filters import Filter
from onerow.core.plan import PhasePlan, Plan, followed
from onerow.core.rates import parse_rate
from onerow.core.status import WAITING
from onerow.core.suggest import did_you_mean
from onerow.core.times import read, spell
from onerow.engine.control import notes
from onerow.ports import Note, Store

PLAN, LIMIT, PAUSE, HOLD = "pipeline", "limit", "pause", "hold"
UNCHANGED: Literal["unchanged"] = "unchanged"
Limit = int | None | Literal["unchanged"]
"""A limit to set: a number, None for no limit, or 'unchanged'."""
RATES = ("rate", "rate_per_key")
LIMITS = ("concurrency", "per_key", *RATES)
"""What operators can set for a phase; the names are those of its options."""
WORKER = "worker"
PULLER = "puller"  # the `kind` of a worker entry that a puller wrote
"""Kind of the notes in which workers are registered."""


class Pause(msgspec.Struct, frozen=True):
    """A phase ('*': the whole pipeline) from which no task may be claimed."""

    pipeline: str
    phase: str
    by: str
    reason: str
    at: str  # since when


class Hold(msgspec.Struct, frozen=True):
    """A phase from which no task may be claimed until a time, because a handler met a rate limit."""

    until: str
    why: str = ""
    by: str = ""  # the worker whose handler met the limit


FINGERPRINT, REPLACED = "fingerprint", "replaced"
"""Extra fields of a definition's note: its fingerprint, and those of the definitions that it replaced."""
BINDS_AFTER = timedelta(seconds=2)
"""A published definition applies to every outcome that is decided at least this long after it was written."""
_STALE_AFTER = timedelta(milliseconds=1500)  # leaves time for one round of a worker before BINDS_AFTER
_MOST_REPLACED = 200
REGISTERED_FOR = timedelta(seconds=15)
"""A worker whose registry entry is older than this counts as dead."""
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


def publish(store: Store, plans: Iterable[Plan], *, force: bool = False) -> list[str]:
    """Write each definition that differs from the stored one; return the names of those written.

    A definition that was replaced by the stored one or by a predecessor is outdated: it is written only with `force`.
    """
    return [plan.name for plan in plans if _publish(store, plan, force=force)]


def replaced(store: Store, plans: Iterable[Plan]) -> list[str]:
    """Return the names of the definitions that are older than the stored ones."""
    stored = {note.name: note for note in store.notes(PLAN)}
    return [plan.name for plan in plans if plan.name in stored and fingerprint(plan) in _replaced_by(stored[plan.name])]


def stored(store: Store) -> list[Plan]:
    """Return the published definitions that can be read."""
    return [plan for note in store.notes(PLAN) if (plan := _plan_of(note)) is not None]


def stranded(store: Store, before: Iterable[Plan], after: Mapping[str, Plan]) -> Iterator[tuple[str, str, int]]:
    """Yield pipeline, phase and number of the tasks that wait at phases which a definition had before and lacks now."""
    for older in before:
        plan = after.get(older.name, older)
        gone = frozenset(phase.name for phase in older.phases if not plan.knows(phase.name))
        where = Filter(pipeline=plan.name, phases=gone, statuses=frozenset({WAITING}))
        found: Counter[str] = Counter()
        for line in store.count(where) if gone else ():
            found[line.phase] += line.count
        for phase, count in found.items():
            yield plan.name, phase, count


def fingerprint(plan: Plan) -> str:
    """Return a hash that is the same for equal definitions in every process."""
    return hashlib.sha256(_encode_sorted(plan)).hexdigest()[:16]


def _publish(store: Store, plan: Plan, *, force: bool) -> bool:
    mine = fingerprint(plan)
    body = msgspec.json.decode(msgspec.json.encode(plan)) | {FINGERPRINT: mine}  # lists instead of tuples

    def replacing(note: Note | None) -> Any:
        older, stored = ([], None) if note is None else (_replaced_by(note), note.body.get(FINGERPRINT))
        if stored == mine or (mine in older and not force):
            return None
        older = [each for each in (*older, stored) if each not in (None, mine)]
        return body | {REPLACED: older[-_MOST_REPLACED:]}

    return notes.update(store, PLAN, plan.name, replacing) is not None


def _replaced_by(note: Note) -> list[str]:
    return list(note.body.get(REPLACED, ()))


def has_workers(store: Store, names: Iterable[str]) -> bool:
    """Whether live workers serve a phase of one of these pipelines."""
    wanted, since = set(names), store.now() - REGISTERED_FOR
    return any(
        note.updated_at is not None
        and note.updated_at >= since
        and note.body.get("kind") != PULLER  # reads the definition with each claim
        and wanted & {name for name, _ in note.body.get("phases", ())}
        for note in store.notes(WORKER)
    )


class Definitions:
    """Thread-safe cache of the published definitions."""

    def __init__(self, store_of: Callable[[], Store]) -> None:
        self._store_of = store_of
        self._lock = threading.Lock()
        self._published: dict[str, tuple[int, Plan]] = {}  # name → (version of the note, definition)
        self._followed: dict[str, tuple[Plan, Plan, Plan]] = {}  # name → (own, published, merged)
        self._read_at: datetime | None = None

    def refresh(self) -> None:
        """Read the published definitions from the store."""
        with self._lock:
            store = self._store_of()
            read_at = store.now()
            found = {}
            for note in store.notes(PLAN):
                known = self._published.get(note.name)
                if known is not None and known[0] == note.version:
                    found[note.name] = known
                elif (plan := _plan_of(note)) is not None:
                    found[note.name] = (note.version, plan)
            self._published, self._read_at = found, read_at

    def refresh_if_stale(self, now: datetime) -> None:
        """Read the published definitions if the last read is too old."""
        if self._read_at is None or abs(now - self._read_at) > _STALE_AFTER:
            self.refresh()

    def of(self, name: str) -> Plan | None:
        """Return the published definition of a pipeline, as last read."""
        found = self._published.get(name)
        return None if found is None else found[1]

    def names(self) -> list[str]:
        """Return the names of the published pipelines, as last read."""
        return sorted(self._published)

    def follow(self, own: Plan) -> Plan:
        """Return the definition that tasks follow when the code has `own`; see core.plan.followed."""
        published = self.of(own.name)
        if published is None:
            return own
        known = self._followed.get(own.name)
        if known is None or known[0] is not own or known[1] is not published:
            known = self._followed[own.name] = (own, published, followed(own, published))
        return known[2]


class Following(Mapping[str, Plan]):
    """The definitions that tasks follow, by pipeline name, as last read."""

    def __init__(self, definitions: Definitions, own: Mapping[str, Plan]) -> None:
        self._definitions = definitions
        self._own = own

    def __getitem__(self, name: str) -> Plan:
        return self._definitions.follow(self._own[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._own)

    def __len__(self) -> int:
        return len(self._own)


def load_plans(store: Store) -> dict[str, Plan]:
    """Return all published definitions, except those in a newer format that this version cannot read."""
    found = {note.name: _plan_of(note) for note in store.notes(PLAN)}
    return {name: plan for name, plan in found.items() if plan is not None}


def _plan_of(note: Note) -> Plan | None:
    try:
        return msgspec.convert(note.body, Plan)
    except msgspec.ValidationError:
        return None


class LimitSetting(msgspec.Struct, frozen=True):
    """Limits and rates that an operator set for a phase, in place of those in the code."""

    limits: dict[str, int | str | None]  # by name, see LIMITS; None: no limit
    by: str = ""  # '' if it was set by a version that did not record it
    reason: str = ""
    at: str = ""


class Controls(msgspec.Struct, frozen=True):
    """Limits, pauses and holds in force; workers read them about once a second."""

    limits: dict[tuple[str, str], dict[str, Any]] = {}  # what operators set; see `set_limit`
    pauses: dict[tuple[str, str], Pause] = {}
    holds: dict[tuple[str, str], Hold] = {}

    def limits_of(self, pipeline: str, phase: PhasePlan) -> tuple[int | None, int | None]:
        """Return (concurrency, concurrency per key) as set by an operator, else as defined."""
        if not self.limits:
            return phase.concurrency, phase.per_key
        own = self._set(pipeline, phase.names)
        return own.get("concurrency", phase.concurrency), own.get("per_key", phase.per_key)

    def in_force(self, pipeline: str, phase: PhasePlan) -> PhasePlan:
        """Return the phase with the limits and rates that operators set."""
        own = self._set(pipeline, phase.names) if self.limits else {}
        changes = {field: own[field] for field in LIMITS if field in own}
        changes |= {field: changes[field] or "" for field in RATES if field in changes}
        return msgspec.structs.replace(phase, **changes) if changes else phase

    def setting_of(self, pipeline: str, names: Sequence[str]) -> LimitSetting | None:
        """Return what an operator set for a phase, given by its present and former names."""
        own = self._set(pipeline, names)
        if not own:
            return None
        limits = {field: own[field] for field in LIMITS if field in own}
        return LimitSetting(limits, own.get("by", ""), own.get("reason", ""), own.get("at", ""))

    def _set(self, pipeline: str, names: Sequence[str]) -> dict[str, Any]:
        return next((found for name in names if (found := self.limits.get((pipeline, name)))), {})

    def terms(self, pipeline: str, phase: PhasePlan, now: datetime) -> tuple[int | None, int | None] | None:
        """Return the limits of a phase, or None while it is paused or held."""
        if self.pauses and self.pause_of(pipeline, phase.names) is not None:
            return None
        if self.holds and self.hold_of(pipeline, phase.names, now) is not None:
            return None
        return self.limits_of(pipeline, phase)

    def pause_of(self, pipeline: str, names: Sequence[str]) -> Pause | None:
        """Return the pause of a phase, given by its present and former names, or of its pipeline."""
        return next((pause for name in (*names, "*") if (pause := self.pauses.get((pipeline, name)))), None)

    def hold_of(self, pipeline: str, names: Sequence[str], now: datetime) -> Hold | None:
        """Return the hold in force of a phase, given by its present and former names; the one that ends last."""
        found = [hold for name in names if (hold := self.holds.get((pipeline, name))) and read(hold.until) > now]
        return max(found, key=lambda hold: hold.until, default=None)


def load_controls(store: Store) -> Controls:
    """Read the controls from the store."""
    limits = {_pair(note.name): note.body for note in store.notes(LIMIT)}
    pauses = {_pair(note.name): msgspec.convert(note.body, Pause) for note in store.notes(PAUSE)}
    holds = {_pair(note.name): msgspec.convert(note.body, Hold) for note in store.notes(HOLD)}
    return Controls(limits, pauses, holds)


def set_pause(store: Store, pipeline: str, phase: str, by: str, reason: str) -> None:
    body = msgspec.to_builtins(Pause(pipeline, phase, by, reason, spell(store.now())))
    notes.put(store, Note(PAUSE, f"{pipeline}/{phase}", body))


def drop_controls(store: Store, kind: str, pipeline: str, names: Iterable[str]) -> bool:
    """Delete the limits or pauses of a phase, stored under any of its names; return whether there was one."""
    return store.drop_notes(kind, [f"{pipeline}/{name}" for name in names]) > 0


def set_limit(
    store: Store,
    pipeline: str,
    phase: PhasePlan,
    limits: Mapping[str, int | str | None],
    *,
    by: str = "",
    reason: str = "",
) -> None:
    """Override the limits and rates that are given; the others stay as they are."""
    given = {field: value for field, value in limits.items() if value != UNCHANGED}
    if not given:
        raise BadInput(f"give at least one limit: {', '.join(LIMITS)}", field="limit")
    for field, value in given.items():
        if field in RATES and value is not None:
            if not isinstance(value, str):
                raise BadInput(f"{field} is a text like '60/min', or None for no limit, not {value!r}", field=field)
            parse_rate(value, field)
        elif value is not None and (type(value) is not int or not 1 <= value <= 10_000):
            raise BadInput(
                f"{field} must be a whole number from 1 to 10,000, or None for no limit, not {value!r}", field=field
            )
    former = [note for name in phase.renamed_from if (note := notes.find(store, LIMIT, f"{pipeline}/{name}"))]
    inherited = former[0].body if former else {}

    def override(note: Note | None) -> Any:
        stored = inherited if note is None else note.body
        kept = {field: value for field, value in stored.items() if field in LIMITS}
        author = {"by": by, "reason": reason, "at": spell(store.now())} if by else {}
        return kept | given | author

    notes.update(store, LIMIT, f"{pipeline}/{phase.name}", override)
    drop_controls(store, LIMIT, pipeline, phase.renamed_from)


def set_hold(store: Store, pipeline: str, phase: str, until: datetime, why: str, by: str = "") -> None:
    """Prevent claims from the phase until a time; the hold that ends last wins."""
    body = msgspec.to_builtins(Hold(spell(until), why, by))

    def if_later(note: Note | None) -> Any:
        return None if note is not None and note.body["until"] >= spell(until) else body

    notes.update(store, HOLD, f"{pipeline}/{phase}", if_later)


def known_plan(plans: dict[str, Plan], name: str) -> Plan:
    """Return the plan of a pipeline; raise UnknownName listing the published ones."""
    if name in plans:
        return plans[name]
    there = ", ".join(sorted(plans)) or "none published yet"
    raise UnknownName(
        f"no pipeline {name!r} in the store ({there})",
        fix=did_you_mean(name, plans, "run its worker once, or: onerow publish APP"),
        field="pipeline",
    )


def _pair(name: str) -> tuple[str, str]:
    pipeline, _, phase = name.partition("/")
    return pipeline, phase
