"""How much more a worker can take: hands that are free, a moment's work ahead, rates, and its part of the host."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from time import monotonic

from onerow.core.errors import StoreError
from onerow.core.task import Task
from onerow.engine.control.rates import Rates
from onerow.engine.runners.attempt import Attempt, ServedPhase
from onerow.engine.worker.host_resources import HostResources
from onerow.engine.worker.in_flight import InFlight
from onerow.engine.worker.ready_phases import MOST as MOST_PHASES
from onerow.engine.worker.ready_phases import ReadyPhases
from onerow.engine.worker.roles.controls import PhaseControls
from onerow.ports import Claim, PhaseClaim, Store

MOST = 800
"""Tasks in one claim, and moves in one write."""
_AHEAD_FOR = 0.1  # seconds of work that may lie claimed and not begun
# A suspect takes a fresh interpreter, about this long; the longest that one is put off before any worker may take it.
_SUSPECT_TAKES = timedelta(seconds=0.2)
_LONGEST_PUT_OFF = timedelta(seconds=5)


class ClaimPlanner:
    """Says what to claim, and who of those claimed may begin."""

    def __init__(
        self,
        store: Store,
        worker: str,
        in_flight: InFlight,
        served_phases: Sequence[ServedPhase],
        controls: PhaseControls,
        *,
        concurrency: int,
        room: HostResources | None,
        suspects_starting: int | None = None,
    ) -> None:
        self._now = store.now
        self._suspects_starting = suspects_starting
        self._worker = worker
        self._in_flight = in_flight
        self.phases = ReadyPhases(store, served_phases)
        self._lanes = {(served.pipeline, served.phase.name): served for served in served_phases}
        self._controls = controls
        self._concurrency = concurrency
        self._room = room
        self._rates = Rates(store)
        self._rated = any(served.phase.rated for served in served_phases)
        self._batched = {served.runner for served in served_phases if served.phase.kind == "batch"}
        self._reserved: dict[ServedPhase, int] = {}  # taken of our host for the claim that is under way
        self._run_for = 0.0  # seconds that an attempt takes, a moving mean; 0: not known yet
        self.simple = not (self._rated or self._batched or any(served.weight is not None for served in served_phases))
        """Whether a claim asks for nothing but hands."""
        self.free_again: Callable[[datetime], None] = lambda moment: None  # a rate that is used up has room then

    def claim(self, settling: int, coming: int, now: datetime) -> Claim | None:
        """What to claim, when so many attempts are about to leave our hands and so many tasks may be about to come."""
        in_hands = len(self._in_flight.attempts) - settling + coming
        if self._batched:
            in_hands -= self._saved_by_batches()
        free = self._concurrency - in_hands
        ahead = self.ahead()
        budget = free + ahead
        # Under load wait until there is room for a large claim, which costs less than many small ones.
        if budget <= min(ahead, MOST) * 3 // 4:
            return None
        wants: list[PhaseClaim] = []
        looked_at = []
        most = budget
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
            if served.phase.rated:
                limit = self._rated_limit(served, min(limit, free * served.phase.batch_size), now)
            if served.weight is not None and self._room is not None:
                limit = self._reserved[served] = self._room.take(served.weight, min(limit, free))
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
        # Round robin between phases: where they are few, all are asked, and another one first each time.
        self.phases.asked(looked_at[:1] if self.phases.few else looked_at)
        if not wants and free <= 0:
            return None
        return Claim(self._worker, wants, None, min(most, MOST))

    def ahead(self) -> int:
        """How many tasks to claim beyond what can run at once: a moment's worth."""
        if self._run_for <= 0.0:
            return 0
        ahead = int(self._concurrency * _AHEAD_FOR / self._run_for)
        # Two claims' worth: one that lies ready while the other is on its way.
        return 0 if ahead * 4 < self._concurrency else min(ahead, 2 * MOST)

    def learn(self, seconds: float) -> None:
        """An attempt has run so long."""
        seconds = max(seconds, 1e-5)
        self._run_for = self._run_for * 0.95 + seconds * 0.05 if self._run_for else seconds

    def freed(self, served_phases: Iterable[ServedPhase]) -> None:
        """Attempts of these phases ended: where they are limited, there is room for others."""
        if self.phases.few:
            return
        for served in set(served_phases):
            limits = self._controls.limits(served)
            if limits != (None, None) or served.phase.rated or served.weight is not None:
                self.phases.add(served.pipeline, served.phase.name)

    def give_back_unused(self, tasks: Sequence[Task]) -> None:
        """What the claim found keeps its part of the host until it is settled; the rest is free for others."""
        if not self._reserved:
            return
        reserved, self._reserved = self._reserved, {}
        found = self._by_lane(tasks)
        for served, count in reserved.items():
            if (unused := count - len(found.get(served, ()))) > 0:
                self.give_back(served, unused)

    def give_back(self, served: ServedPhase, count: int = 1) -> None:
        """So many attempts of a phase have left the host."""
        if served.weight is not None and self._room is not None:
            self._room.give_back(served.weight, count)

    def admit(self, tasks: Sequence[Task]) -> tuple[Sequence[Task], list[tuple[Task, datetime | None]]]:
        """Of what was claimed: what may start now, and what goes back, until when."""
        others: list[tuple[Task, datetime | None]] = []
        if self._suspects_starting is not None:
            suspects = [
                task for task in tasks if (task.rescue_count or task.crash_count) and self._gets_a_process(task)
            ]
            if suspects:
                others += self._surplus(suspects, self._suspects_starting)
                put_off = {task.task_id for task, _ in others}
                tasks = [task for task in tasks if task.task_id not in put_off]
        if not self._rated:
            return tasks, others
        admitted: list[Task] = []
        for served, group in self._by_lane(tasks).items():
            if not served.phase.rated:
                admitted += group
                continue
            try:
                some, rest = self._rates.admit(served.pipeline, served.phase, group)
            except StoreError:
                some, rest = [], [(task, None) for task in group]
            admitted += some
            others += rest
        return admitted, others

    def _surplus(self, suspects: Sequence[Task], at_once: int) -> list[tuple[Task, datetime | None]]:
        """The suspects beyond those that may start their processes now, with the times until which they are put off.

        They are handed back instead of waiting here: a worker that dies again takes few of them along, ordinary tasks
        don't wait behind them, and other workers may run them.
        """
        clock = monotonic()
        starting = sum(
            attempt.task.suspect and self._gets_a_process(attempt.task) and not attempt.has_begun(clock)
            for attempt in self._in_hands()
        )
        room = max(0, at_once - starting)
        now = self._now()
        return [
            (task, now + min(_SUSPECT_TAKES * (1 + place // at_once), _LONGEST_PUT_OFF))
            for place, task in enumerate(suspects[room:])
        ]

    def _gets_a_process(self, task: Task) -> bool:
        """Whether the task runs in a process of its own only because it is a suspect."""
        served = self._lanes[task.pipeline, task.phase]
        return served.runner is not served.isolated

    def _in_hands(self) -> list[Attempt]:
        return list(self._in_flight.attempts.values())

    def _by_lane(self, tasks: Sequence[Task]) -> dict[ServedPhase, list[Task]]:
        groups: dict[ServedPhase, list[Task]] = {}
        for task in tasks:
            groups.setdefault(self._lanes[task.pipeline, task.phase], []).append(task)
        return groups

    def _saved_by_batches(self) -> int:
        """How many hands fewer than attempts are needed, because a batch takes one."""
        counts = Counter(attempt.served for attempt in self._in_hands() if attempt.runner in self._batched)
        return sum(count - -(-count // served.phase.batch_size) for served, count in counts.items())

    def _rated_limit(self, served: ServedPhase, limit: int, now: datetime) -> int:
        room = self._rates.room(served.pipeline, served.phase, now)
        if room == 0:
            self.free_again(self._rates.free_at(served.pipeline, served.phase, now))
        return limit if room is None else min(limit, room)
