"""What to claim: from which phases, and how many tasks by free concurrency and rates."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from time import monotonic

from onerow.core.errors import StoreError
from onerow.core.plan import PhasePlan
from onerow.core.task import Task
from onerow.core.times import to_millis
from onerow.engine.control.rates import Rates
from onerow.engine.runners.attempt import Attempt, InFlight, ServedPhase
from onerow.engine.worker.counters import Counters
from onerow.engine.worker.roles.controls import PhaseControls
from onerow.engine.worker.roles.sweeps import FEW_PHASES
from onerow.ports import Claim, PhaseClaim, Store

MOST_PHASES = 100
"""The largest number of phases in one claim."""
MOST = 800
"""The largest number of tasks in one claim, and of moves in one write."""
_ASK_EVERY = 1.0
_ASKING_SHARE = 0.05  # of the time, at most, while tasks of known phases can be claimed
_AHEAD_FOR = 0.1  # seconds of work that may be claimed before it can start
# A suspect needs a new interpreter. How long one takes to start is measured; this is the first guess, in seconds.
_SUSPECT_TAKES, _SHORTEST_START, _LONGEST_START = 0.2, 0.02, 5.0
_EARLY = 0.7  # the next suspect is due after this part of the time that a start takes: better early than late
_LONGEST_POSTPONEMENT = timedelta(seconds=60)  # after which other workers may help


class ReadyPhases:
    """The phases of the next claim: all if they are few, else those with due tasks; round robin. Used by the claiming thread; `look` is safe from any thread."""

    def __init__(self, store: Store, served_phases: Sequence[ServedPhase]) -> None:
        self._store = store
        self._served = {(served.pipeline, served.phase.name): served for served in served_phases}
        self.few = len(served_phases) <= FEW_PHASES
        self._candidates: dict[tuple[str, str], ServedPhase] = dict(self._served) if self.few else {}
        self._stale = True
        self._ask_at = 0.0
        self._not_before = 0.0
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
        clock = monotonic()
        wanted = (self._stale and clock >= self._not_before) or clock >= self._ask_at
        self._just_asked = wanted or not self._candidates
        if self._just_asked:
            self._stale = False
            ready = self._store.ready(self._served.keys(), now)
            known, self._candidates = self._candidates, {}
            named = set(ready)
            for phase in [*(phase for phase in known if phase in named), *ready]:
                self._candidates[phase] = self._served[phase]
            answered = monotonic()
            self._ask_at = answered + _ASK_EVERY
            # With thousands of phases the question takes longer than a claim, and each wake-up asks for it.
            self._not_before = answered + (answered - clock) / _ASKING_SHARE
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


class SettledLately:
    """How many attempts a worker has settled in the last `span` seconds."""

    def __init__(self, counters: Counters, span: float) -> None:
        self._counters = counters
        self._span = span
        self._marks = deque([(monotonic(), 0)])  # times, and how many were settled until then

    def count(self) -> int:
        """Return the number, or a slightly smaller one: since the first mark in the span."""
        clock, settled = monotonic(), self._counters.settled
        if clock - self._marks[-1][0] >= self._span / 16:
            self._marks.append((clock, settled))
        while clock - self._marks[0][0] > self._span:
            self._marks.popleft()
        return settled - self._marks[0][1]


class ClaimPlanner:
    """Decide what to claim, and which of the claimed tasks may start."""

    def __init__(
        self,
        store: Store,
        worker: str,
        in_flight: InFlight,
        served_phases: Sequence[ServedPhase],
        controls: PhaseControls,
        *,
        concurrency: int,
        suspects_starting: int | None = None,
        counters: Counters | None = None,
    ) -> None:
        self._counters = counters or Counters()
        self._now = store.now
        self._suspects_starting = suspects_starting
        self.suspects_until = datetime.min.replace(tzinfo=UTC)  # the latest time to which a suspect was put off
        self._worker = worker
        self._in_flight = in_flight
        self.phases = ReadyPhases(store, served_phases)
        self._served = {(served.pipeline, served.phase.name): served for served in served_phases}
        self._controls = controls
        self._concurrency = concurrency
        self._rates = Rates(store)
        self._batched = {served.runner for served in served_phases if served.phase.kind == "batch"}
        self._run_for = 0.0  # seconds that an attempt takes, as a moving mean; 0: not known yet
        self._starts_in = _SUSPECT_TAKES  # seconds that the process of a suspect takes to start, as a moving mean
        self._settled = SettledLately(self._counters, min((served.lease for served in served_phases), default=0.0) / 3)
        self.on_rate_free: Callable[[datetime], None] = lambda moment: None  # called when a rate is used up

    @property
    def simple(self) -> bool:
        """Whether claims are limited by concurrency only, at present."""
        return not (self._controls.rated or self._batched)

    def claim(self, settling: int, coming: int, now: datetime) -> Claim | None:
        """Return the next claim, or None; `settling` attempts are about to end, and `coming` tasks may be on their way."""
        used = len(self._in_flight.attempts) - settling + coming
        if self._batched:
            used -= self._saved_by_batches()
        free = self._concurrency - used
        ahead = self.ahead()
        budget = free + ahead
        # Under load wait until a large claim is possible: it costs less than many small ones.
        if budget <= min(ahead, MOST) * 3 // 4:
            return None
        wants: list[PhaseClaim] = []
        looked_at = []
        most = budget
        rated = self._controls.rated
        for served in self.phases.candidates(now):
            if len(wants) == MOST_PHASES:
                break
            looked_at.append(served)
            terms = self._controls.terms(served, now)
            if terms is None:
                continue
            limited = terms != (None, None) or served.runner is served.isolated
            limit = min(free, self._concurrency) if limited else min(budget, MOST)
            if served.phase.kind == "batch":
                limit = min(free * served.phase.batch_size, MOST)
                most += max(0, limit)
            if rated and (phase := rated.get(served)) is not None:
                limit = self._rated_limit(served.pipeline, phase, min(limit, free * served.phase.batch_size), now)
            if limit > 0:
                wants.append(
                    PhaseClaim(
                        pipeline=served.pipeline,
                        phase=served.phase.name,
                        limit=limit,
                        lease_for=served.phase.lease,
                        slots=terms[0],
                        key_slots=terms[1],
                    )
                )
        # Round robin: with few phases, each claim names all of them and starts with another one.
        self.phases.asked(looked_at[:1] if self.phases.few else looked_at)
        if not wants and free <= 0:
            return None
        return Claim(self._worker, wants, None, min(most, MOST))

    def ahead(self) -> int:
        """Return how many tasks to claim beyond the concurrency, so that short tasks do not wait for the next claim.

        At most as many as the store lets this worker settle within a third of a lease: else their leases could end first.
        """
        if self._run_for <= 0.0:
            return 0
        ahead = int(self._concurrency * _AHEAD_FOR / self._run_for)
        # Two claims: the tasks of one are ready to start while the other is under way.
        return 0 if ahead * 4 < self._concurrency else min(ahead, 2 * MOST, self._settled.count())

    def record(self, attempt: Attempt) -> None:
        """Take the duration of an attempt into the mean, and that of the start of its process if it is a suspect."""
        if attempt.started_at is None:
            return
        seconds = max(attempt.ended_at - attempt.started_at, 1e-5)
        self._run_for = self._run_for * 0.95 + seconds * 0.05 if self._run_for else seconds
        if attempt.runner is not attempt.served.runner:
            took = min(max(attempt.started_at - attempt.beat_at, _SHORTEST_START), _LONGEST_START)
            self._starts_in = self._starts_in * 0.8 + took * 0.2

    def freed(self, served_phases: Iterable[ServedPhase]) -> None:
        """Note that attempts of these phases ended, which frees slots of limited phases."""
        if self.phases.few:
            return
        for served in set(served_phases):
            limits = self._controls.limits(served)
            if limits != (None, None) or served in self._controls.rated:
                self.phases.add(served.pipeline, served.phase.name)

    def postponed(self, tasks: Sequence[Task]) -> dict[str, datetime | None]:
        """Return the ids of claimed tasks that may not start now, with the time to which each is put off."""
        others: dict[str, datetime | None] = {}
        if self._suspects_starting is not None:
            suspects = [
                task for task in tasks if (task.rescue_count or task.crash_count) and self._gets_a_process(task)
            ]
            if suspects:
                others |= self._surplus(suspects, self._suspects_starting)
        if rated := self._controls.rated:
            for served, group in self._by_phase([task for task in tasks if task.task_id not in others]).items():
                if (phase := rated.get(served)) is not None:
                    others |= self._beyond_rate(served.pipeline, phase, group)
        return others

    def _beyond_rate(self, pipeline: str, phase: PhasePlan, tasks: list[Task]) -> dict[str, datetime | None]:
        try:
            _, rest = self._rates.admit(pipeline, phase, tasks)
        except StoreError:
            rest = [(task, None) for task in tasks]
        return {task.task_id: until for task, until in rest}

    def _surplus(self, suspects: Sequence[Task], at_once: int) -> dict[str, datetime | None]:
        """Return the suspects that may not start their processes now, with the times to which they are put off.

        They are handed back instead of waiting here: if this worker dies, few of them are affected, ordinary tasks
        do not wait behind them, and other workers may run them.
        """
        clock = monotonic()
        starting = sum(
            attempt.task.suspect and self._gets_a_process(attempt.task) and not attempt.has_begun(clock)
            for attempt in self._attempts()
        )
        free = max(0, at_once - starting)
        now = self._now()
        each = timedelta(seconds=self._starts_in * _EARLY / at_once)
        put_off: dict[str, datetime | None] = {}
        for task in suspects[free:]:  # each after those that were put off before, so that few are due at any time
            until = to_millis(min(max(now, self.suspects_until) + each, now + _LONGEST_POSTPONEMENT))
            self.suspects_until = max(self.suspects_until, until)
            put_off[task.task_id] = until
        return put_off

    def _gets_a_process(self, task: Task) -> bool:
        """Whether the task runs in its own process only because it is a suspect."""
        served = self._served[task.pipeline, task.phase]
        return served.runner is not served.isolated

    def _attempts(self) -> list[Attempt]:
        return list(self._in_flight.attempts.values())

    def _by_phase(self, tasks: Sequence[Task]) -> dict[ServedPhase, list[Task]]:
        groups: dict[ServedPhase, list[Task]] = {}
        for task in tasks:
            groups.setdefault(self._served[task.pipeline, task.phase], []).append(task)
        return groups

    def _saved_by_batches(self) -> int:
        """Return by how much the used concurrency is below the number of attempts, because a batch counts once."""
        counts = Counter(attempt.served for attempt in self._attempts() if attempt.runner in self._batched)
        return sum(count - -(-count // served.phase.batch_size) for served, count in counts.items())

    def _rated_limit(self, pipeline: str, phase: PhasePlan, limit: int, now: datetime) -> int:
        left = self._rates.starts_left(pipeline, phase, now)
        if left == 0:
            self._counters.limited_rate += 1
            self.on_rate_free(self._rates.free_at(pipeline, phase, now))
        return limit if left is None else min(limit, left)
