"""Which phases to claim from: all of them where they are few, else those in which the store has due tasks."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from time import monotonic

from onerow.core.task import Task
from onerow.engine.runners.attempt import ServedPhase
from onerow.ports import Claim, Store

FEW = 50
"""Phases that a worker names in each claim; with more it asks first which of them have due tasks."""
MOST = 100
"""Phases in one claim of a worker that serves more than a few."""
_ASK_EVERY = 1.0


class ReadyPhases:
    """The phases of the next claim, in turn. Used by the thread that claims; `look` is safe from any thread."""

    def __init__(self, store: Store, served_phases: Sequence[ServedPhase]) -> None:
        self._store = store
        self._lanes = {(served.pipeline, served.phase.name): served for served in served_phases}
        self.few = len(served_phases) <= FEW
        self._candidates: dict[tuple[str, str], ServedPhase] = dict(self._lanes) if self.few else {}
        self._stale = True
        self._ask_at = 0.0
        self._just_asked = False

    def look(self) -> None:
        """Tasks may have come to any phase: ask before the next claim."""
        self._stale = True

    def add(self, pipeline: str, phase: str) -> None:
        """Tasks of this phase may be ready."""
        if not self.few and (served := self._lanes.get((pipeline, phase))) is not None:
            self._candidates.setdefault((pipeline, phase), served)

    def candidates(self, now: datetime) -> list[ServedPhase]:
        """The phases in which to look for work, those that waited longest first."""
        if self.few:
            return list(self._candidates.values())
        self._just_asked = self._stale or not self._candidates or monotonic() >= self._ask_at
        if self._just_asked:
            self._stale = False
            ready = self._store.ready(self._lanes.keys(), now)
            known, self._candidates = self._candidates, {}
            named = set(ready)
            for phase in [*(phase for phase in known if phase in named), *ready]:
                self._candidates[phase] = self._lanes[phase]
            self._ask_at = monotonic() + _ASK_EVERY
        return list(self._candidates.values())

    def asked(self, served_phases: Iterable[ServedPhase]) -> None:
        """The next claim looks at these: others come first in the one after it."""
        for served in served_phases:
            phase = (served.pipeline, served.phase.name)
            if self._candidates.pop(phase, None) is not None:
                self._candidates[phase] = served

    def claimed(self, claim: Claim, tasks: Sequence[Task]) -> bool:
        """Forget the phases of which a claim found less than it wanted; whether there may be work in others."""
        if self.few:
            return False
        found = Counter((task.pipeline, task.phase) for task in tasks)
        wants = claim.wants
        if claim.limit is not None and len(tasks) >= claim.limit:
            # It ended with the last phase of which it found something; at those behind it nobody looked.
            last = max((n for n, want in enumerate(wants) if found[want.pipeline, want.phase]), default=0)
            wants = wants[:last]
        for want in wants:
            if found[want.pipeline, want.phase] < want.limit:
                self._candidates.pop((want.pipeline, want.phase), None)
        if not tasks and not self._just_asked:
            self._stale = True
        return self._stale or (bool(wants) and bool(self._candidates))
