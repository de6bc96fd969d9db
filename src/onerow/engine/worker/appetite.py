"""How much more a worker can take: hands that are free, a moment's work ahead, rates, and its part of the host."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from onerow.core.errors import StoreError
from onerow.core.task import Task
from onerow.engine.rates import Rates
from onerow.engine.worker.attempt import Attempt, Lane
from onerow.engine.worker.hands import Hands
from onerow.engine.worker.ready import MOST as MOST_PHASES
from onerow.engine.worker.ready import ReadyPhases
from onerow.engine.worker.registrar import Registrar
from onerow.engine.worker.room import Room
from onerow.ports import Claim, Store, Want

MOST = 800
"""Tasks in one claim, and moves in one write."""
_AHEAD_FOR = 0.1  # seconds of work that may lie claimed and not begun


class Appetite:
    """Says what to claim, and who of those claimed may begin."""

    def __init__(
        self,
        store: Store,
        worker: str,
        hands: Hands,
        lanes: Sequence[Lane],
        registrar: Registrar,
        *,
        concurrency: int,
        room: Room | None,
    ) -> None:
        self._worker = worker
        self._hands = hands
        self.phases = ReadyPhases(store, lanes)
        self._lanes = {(lane.pipeline, lane.phase.name): lane for lane in lanes}
        self._registrar = registrar
        self._concurrency = concurrency
        self._room = room
        self._rates = Rates(store)
        self._rated = any(lane.phase.rated for lane in lanes)
        self._batched = {lane.runner for lane in lanes if lane.phase.kind == "batch"}
        self._reserved: dict[Lane, int] = {}  # taken of our host for the claim that is under way
        self._run_for = 0.0  # seconds that an attempt takes, a moving mean; 0: not known yet
        self.simple = not (self._rated or self._batched or any(lane.weight is not None for lane in lanes))
        """Whether a claim asks for nothing but hands."""
        self.free_again: Callable[[datetime], None] = lambda moment: None  # a rate that is used up has room then

    def claim(self, settling: int, coming: int, now: datetime) -> Claim | None:
        """What to claim, when so many attempts are about to leave our hands and so many tasks may be about to come."""
        in_hands = len(self._hands.attempts) - settling + coming
        if self._batched:
            in_hands -= self._saved_by_batches()
        free = self._concurrency - in_hands
        ahead = self.ahead()
        budget = free + ahead
        # Under load wait until there is room for a large claim, which costs less than many small ones.
        if budget <= min(ahead, MOST) * 3 // 4:
            return None
        wants: list[Want] = []
        looked_at = []
        most = budget
        for lane in self.phases.candidates(now):
            if len(wants) == MOST_PHASES:
                break
            looked_at.append(lane)
            terms = self._registrar.terms(lane, now)
            if terms is None:
                continue
            limited = terms != (None, None) or lane.runner is lane.isolated
            limit = min(free, self._concurrency) if limited else min(budget, MOST)
            if lane.phase.kind == "batch":
                limit = min(free * lane.phase.batch_size, MOST)
                most += max(0, limit)
            if lane.phase.rated:
                limit = self._rated_limit(lane, min(limit, free * lane.phase.batch_size), now)
            if lane.weight is not None and self._room is not None:
                limit = self._reserved[lane] = self._room.take(lane.weight, min(limit, free))
            if limit > 0:
                wants.append(
                    Want(
                        pipeline=lane.pipeline,
                        phase=lane.phase.name,
                        limit=limit,
                        lease_for=lane.phase.lease,
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

    def freed(self, lanes: Iterable[Lane]) -> None:
        """Attempts of these phases ended: where they are limited, there is room for others."""
        if self.phases.few:
            return
        for lane in set(lanes):
            limits = self._registrar.limits(lane)
            if limits != (None, None) or lane.phase.rated or lane.weight is not None:
                self.phases.add(lane.pipeline, lane.phase.name)

    def give_back_unused(self, tasks: Sequence[Task]) -> None:
        """What the claim found keeps its part of the host until it is settled; the rest is free for others."""
        if not self._reserved:
            return
        reserved, self._reserved = self._reserved, {}
        found = self._by_lane(tasks)
        for lane, count in reserved.items():
            if (unused := count - len(found.get(lane, ()))) > 0:
                self.give_back(lane, unused)

    def give_back(self, lane: Lane, count: int = 1) -> None:
        """So many attempts of a phase have left the host."""
        if lane.weight is not None and self._room is not None:
            self._room.give_back(lane.weight, count)

    def admit(self, tasks: Sequence[Task]) -> tuple[Sequence[Task], list[tuple[Task, datetime | None]]]:
        """Of what was claimed: what may start by its phase's rate, and what goes back, until when."""
        if not self._rated:
            return tasks, []
        admitted: list[Task] = []
        others: list[tuple[Task, datetime | None]] = []
        for lane, group in self._by_lane(tasks).items():
            if not lane.phase.rated:
                admitted += group
                continue
            try:
                some, rest = self._rates.admit(lane.pipeline, lane.phase, group)
            except StoreError:
                some, rest = [], [(task, None) for task in group]
            admitted += some
            others += rest
        return admitted, others

    def _by_lane(self, tasks: Sequence[Task]) -> dict[Lane, list[Task]]:
        groups: dict[Lane, list[Task]] = {}
        for task in tasks:
            groups.setdefault(self._lanes[task.pipeline, task.phase], []).append(task)
        return groups

    def _saved_by_batches(self) -> int:
        """How many hands fewer than attempts are needed, because a batch takes one."""
        attempts: list[Attempt] = list(self._hands.attempts.values())
        counts = Counter(attempt.lane for attempt in attempts if attempt.runner in self._batched)
        return sum(count - -(-count // lane.phase.batch_size) for lane, count in counts.items())

    def _rated_limit(self, lane: Lane, limit: int, now: datetime) -> int:
        room = self._rates.room(lane.pipeline, lane.phase, now)
        if room == 0:
            self.free_again(self._rates.free_at(lane.pipeline, lane.phase, now))
        return limit if room is None else min(limit, room)
