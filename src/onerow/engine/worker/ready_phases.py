"""Which phases to claim from: all of them if they are few, else those in which the store has due tasks."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from time import monotonic

from onerow.core.task import Task
from onerow.engine.runners.attempt import ServedPhase
from onerow.ports import Claim, Store

FEW = 50
"""A worker with at most this many phases names all of them in each claim; with more it first asks which are ready."""
MOST = 100
"""The largest number of phases in one claim."""
_ASK_EVERY = 1.0


class ReadyPhases:
    """The phases of the next claim, round robin. Used by the claiming thread; `look` is safe from any thread."""

    def __init__(self, store: Store, served_phases: Sequence[ServedPhase]) -> None:
        self._store = store
        self._served = {(served.pipeline, served.phase.name): served for served in served_phases}
        self.few = len(served_phases) <= FEW
        self._candidates: dict[tuple[str, str], ServedPhase] = dict(self._served) if self.few else {}
        self._stale = True
        self._ask_at = 0.0
        self._just_asked = False

    def look(self) -> None:
        """Assume that tasks may be due in any phase: ask the store before the next claim."""
        self._stale = True

    def add(self, pipeline: str, phase: str) -> None:
        """Assume that tasks of this phase may be ready."""
        if not self.few and (served := self._served.get((pipeline, phase))) is not None:
            self._candidates.setdefault((pipeline, phase), served)

    def candidates(self, now: datetime) -> list[ServedPhase]:
        """Return the phases to claim from, least recently asked first."""
        if self.few:
            return list(self._candidates.values())
        self._just_asked = self._stale or not self._candidates or monotonic() >= self._ask_at
        if self._just_asked:
            self._stale = False
            ready = self._store.ready(self._served.keys(), now)
            known, self._candidates = self._candidates, {}
            named = set(ready)
            for phase in [*(phase for phase in known if phase in named), *ready]:
                self._candidates[phase] = self._served[phase]
            self._ask_at = monotonic() + _ASK_EVERY
        return list(self._candidates.values())

    def asked(self, served_phases: Iterable[ServedPhase]) -> None:
        """Note that the next claim names these phases, and move them to the end of the order."""
        for served in served_phases:
            phase = (served.pipeline, served.phase.name)
            if self._candidates.pop(phase, None) is not None:
                self._candidates[phase] = served

    def claimed(self, claim: Claim, tasks: Sequence[Task]) -> bool:
        """Remove phases of which a claim found fewer tasks than its limit; return whether others may have due tasks."""
        if self.few:
            return False
        found = Counter((task.pipeline, task.phase) for task in tasks)
        wants = claim.phases
        if claim.limit is not None and len(tasks) >= claim.limit:
            # The claim stopped at the last phase in which it found a task; it did not look at the phases after it.
            last = max((n for n, want in enumerate(wants) if found[want.pipeline, want.phase]), default=0)
            wants = wants[:last]
        for want in wants:
            if found[want.pipeline, want.phase] < want.limit:
                self._candidates.pop((want.pipeline, want.phase), None)
        if not tasks and not self._just_asked:
            self._stale = True
        return self._stale or (bool(wants) and bool(self._candidates))
