"""Read limits, pauses and holds about once a second, and keep this worker's entry in the worker registry."""

from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from time import monotonic

import msgspec

from onerow.core.errors import CodeTooOld, QueueRelocated, StoreError
from onerow.core.plan import PhasePlan, Plan
from onerow.engine.control import definitions, drains, notes
from onerow.engine.control.definitions import WORKER, Controls, Definitions
from onerow.engine.control.inbox_counts import InboxState
from onerow.engine.control.relocation import check_not_relocated
from onerow.engine.events.hooks import GuardState
from onerow.engine.runners.attempt import ServedPhase
from onerow.identity import Identity
from onerow.ports import Note, Store

_REGISTER_EVERY = 5.0


class PhaseControls:
    """The limits, pauses and holds in force, and this worker's registry entry."""

    def __init__(
        self,
        store: Store,
        identity: Identity,
        served_phases: Sequence[ServedPhase],
        concurrency: int,
        published: Definitions | None = None,
    ) -> None:
        self._store = store
        self._published = Definitions(lambda: store) if published is None else published
        self._replaced: dict[str, Plan] = {}  # newer definitions that tasks follow instead of this app's
        self._identity = identity
        self._served = served_phases
        self._concurrency = concurrency
        self._controls = Controls()
        self._own_holds: dict[tuple[str, str], datetime] = {}
        self._to_hold: deque[tuple[str, str, datetime, str, str]] = deque()
        self.rated: dict[ServedPhase, PhasePlan] = self._rated()
        """The served phases that have a rate, as published and with what operators set; other threads read it."""
        self._register_at = 0.0
        self._entry_version = 0
        self.draining = False
        self.hooks: Callable[[], list[GuardState]] = list  # hooks that are overdue or lost events
        self.inboxes: Callable[[], list[InboxState]] = list
        self.overdue: Callable[[], float] = float  # seconds for which the worker should have claimed, and did not
        self.asked_to_drain: Callable[[], None] = lambda: None
        self.outdated: Callable[[CodeTooOld | QueueRelocated], None] = lambda error: None
        self.replaced: Callable[[Plan, Plan], None] = lambda own, followed: None

    def tick(self, now: datetime) -> float:
        """Do one round; return the seconds until the next."""
        self._write_holds()
        self._published.refresh()
        self._controls = definitions.load_controls(self._store)
        self.rated = self._rated()
        self._report_replaced()
        if monotonic() >= self._register_at:
            try:
                self._store.check()
                check_not_relocated(self._store)
            except (CodeTooOld, QueueRelocated) as error:
                # The store's schema is newer than this code, or its queue was moved: drain.
                self.outdated(error)
            if not self.draining and drains.is_asked_to_drain(self._store, self._identity.name):
                self.asked_to_drain()
            self.register(now)
        return 1.0

    def register(self, now: datetime) -> None:
        """Write this worker's registry entry."""
        body: dict[str, object] = {
            "worker": self._identity.name,
            "host": self._identity.host,
            "boot": self._identity.boot,
            "namespace": self._identity.namespace,
            "pid": self._identity.pid,
            "born": self._identity.born,
            "started_at": self._identity.started_at.isoformat(),
            "concurrency": self._concurrency,
            "phases": [[served.pipeline, served.phase.name] for served in self._served],
            "draining": self.draining,
            "overdue": round(self.overdue(), 1),
        }
        if hooks := self.hooks():
            body["hooks"] = msgspec.to_builtins(hooks)
        if inboxes := self.inboxes():
            body["inboxes"] = msgspec.to_builtins(inboxes)
        # Another worker may have taken this one for dead and removed its entry.
        entry = Note(WORKER, self._identity.name, body, self._entry_version)
        self._entry_version = notes.put(self._store, entry).version
        self._register_at = monotonic() + _REGISTER_EVERY

    def drain(self) -> None:
        """Say in the registry, from the next round on, that this worker claims no more."""
        self.draining = True
        self._register_at = 0.0

    def unregister(self) -> None:
        """Remove this worker's registry entry."""
        self._store.drop_notes(WORKER, [self._identity.name])
        if self.draining:
            drains.forget(self._store, self._identity.name)

    def plan_of(self, served: ServedPhase) -> Plan:
        """Return the definition that tasks of a served phase follow."""
        return self._published.follow(served.plan)

    def refresh_plans(self, now: datetime) -> None:
        """Read the definitions again if those of the last round are too old to decide by."""
        self._published.refresh_if_stale(now)

    def phase_of(self, served: ServedPhase) -> PhasePlan:
        """Return a served phase as published; if its definition was replaced, under its present name."""
        plan = self.plan_of(served)
        return served.phase if plan is served.plan else plan.phase(served.phase.name)

    def _report_replaced(self) -> None:
        """Report each definition that replaced this app's, once."""
        for served in self._served:
            plan = self.plan_of(served)
            if plan is not served.plan and self._replaced.get(plan.name) is not plan:
                self._replaced[plan.name] = plan
                self.replaced(served.plan, plan)

    def terms(self, served: ServedPhase, now: datetime) -> tuple[int | None, int | None] | None:
        """Return the limits of a phase, or None while it is paused or held."""
        if self._own_holds and self._own_holds.get((served.pipeline, served.phase.name), now) > now:
            return None
        return self._controls.terms(served.pipeline, self.phase_of(served), now)

    def limits(self, served: ServedPhase) -> tuple[int | None, int | None]:
        """Return the limits of a phase, paused or not."""
        return self._controls.limits_of(served.pipeline, self.phase_of(served))

    def _rated(self) -> dict[ServedPhase, PhasePlan]:
        in_force = self._controls.in_force
        phases = ((served, in_force(served.pipeline, self.phase_of(served))) for served in self._served)
        return {served: phase for served, phase in phases if phase.rated}

    def hold(self, served: ServedPhase, for_: timedelta | None, why: str, now: datetime) -> None:
        """Hold a whole phase because a remote service asked for a pause; this worker stops claiming from it at once."""
        until = now + (for_ or timedelta(0))
        if self._own_holds.get((served.pipeline, served.phase.name)) == until:
            return  # the tasks of a batch ask for the same hold
        self._own_holds[served.pipeline, served.phase.name] = until
        self._to_hold.append((served.pipeline, served.phase.name, until, why, self._identity.name))
        try:
            self._write_holds()
        except StoreError:
            pass  # the next round writes it

    def _write_holds(self) -> None:
        while self._to_hold:
            definitions.set_hold(self._store, *self._to_hold[0])
            self._to_hold.popleft()
