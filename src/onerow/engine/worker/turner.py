"""The turn: write what finished, claim what fits, in one call to the store."""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from heapq import heappop, heappush
from time import monotonic

from onerow.core import rules
from onerow.core.errors import StoreError, StoreUnavailable
from onerow.core.failure import Failure, failure
from onerow.core.status import PROCESSING, WAITING
from onerow.core.task import Task
from onerow.engine.events import Events, LeaseGone, TaskAdvanced, TaskCompleted
from onerow.engine.family import concerns
from onerow.engine.rates import Rates
from onerow.engine.settling import Crashed, Done, Failed, Outcome, Stopped, Unstarted, decide, timed_out, told
from onerow.engine.worker.attempt import Attempt, Lane
from onerow.engine.worker.hands import Hands
from onerow.engine.worker.registrar import Registrar
from onerow.engine.worker.room import Room
from onerow.ports import Claim, Move, Store, Swapped, Want

_MOST = 800
_AHEAD_FOR = 0.1  # seconds of work that may lie claimed and not begun


class Turner:
    """Settles and claims. `turn()` is one round; it returns how long to rest (0: not at all)."""

    def __init__(
        self,
        store: Store,
        worker: str,
        hands: Hands,
        lanes: Sequence[Lane],
        registrar: Registrar,
        events: Events,
        *,
        concurrency: int,
        interval: float,
        statistics: Callable[[Task, Task, Outcome], None] | None = None,
        room: Room | None = None,
    ) -> None:
        self._store = store
        self._worker = worker
        self._hands = hands
        self._lanes = {(lane.pipeline, lane.phase.name): lane for lane in lanes}
        self._order = list(lanes)
        self._rates = Rates(store)
        self._rated = any(lane.phase.rated for lane in lanes)
        self._batched = {lane.runner for lane in lanes if lane.phase.kind == "batch"}
        self._registrar = registrar
        self._events = events
        self._concurrency = concurrency
        self._interval = interval
        self._statistics = statistics
        self._room = room
        self._reserved: dict[Lane, int] = {}  # taken of our host for the claim that is under way
        self._run_for = 0.0  # seconds that an attempt takes, a moving mean; 0: not known yet
        self._soon: list[datetime] = []  # when tasks that we put off are due again
        self._unsettled: list[tuple[Attempt, Outcome]] = []
        self._look_at = 0.0
        self.claiming = True
        self.hungry = True
        self.moved_on: Callable[[], None] = lambda: None  # a task came to a phase without code
        self.concerns_family: Callable[[Task], None] = lambda task: None
        self.found = 0  # tasks that the last claim gave

    @property
    def soon(self) -> Sequence[datetime]:
        """When tasks that were put off, or phases that were used up, come again."""
        return self._soon

    def turn(self) -> float:
        """One round: how many seconds to rest until the next, unless something happens."""
        batch = self._take_finished()
        try:
            return self._turn(batch)
        except BaseException:
            # Whether they landed or not, the tokens will tell; those that we know to have landed are out of our hands.
            self._unsettled = [each for each in batch if self._hands.attempts.get(each[0].task.task_id) is each[0]]
            raise

    def _turn(self, batch: list[tuple[Attempt, Outcome]]) -> float:
        now = self._store.now()
        if self._soon and self._soon[0] <= now:
            self.hungry = True
            while self._soon and self._soon[0] <= now:
                heappop(self._soon)
        # Whatever ended left a hand free, and perhaps a slot that others wait for.
        if batch or monotonic() >= self._look_at:
            self.hungry = True
        moves, settling = self._decide(batch, now)
        claim = self._claim(len(settling), now) if self.hungry and self.claiming else None
        full = self.hungry and claim is None
        reports = self._reports()
        if not moves and not reports and claim is None:
            return self._rest(now, full)
        sent_at = monotonic()
        tasks: list[Task] = []
        try:
            answers, tasks = self._store.turn([*moves, *(Move(a.task, t) for a, t in reports)], claim)
        finally:
            self._give_back_unused(tasks)
        if tasks:
            self._begin(self._admit(tasks, sent_at) if self._rated else tasks, sent_at)
        if claim is not None:
            self._claimed(len(tasks))
        again: list[tuple[Attempt, Outcome]] = []
        for (attempt, outcome), answer in zip(settling, answers, strict=False):
            if type(answer) is Swapped:
                self._settled(attempt, answer.task, outcome)
            else:
                again.append((attempt, outcome))
        for (attempt, _), answer in zip(reports, answers[len(moves) :], strict=True):
            if type(answer) is Swapped:
                attempt.heard(answer.task)
        if again:
            self._settle_again(again)
        return self._rest(now, full)

    # ── claiming ──

    def _claim(self, settling: int, now: datetime) -> Claim | None:
        in_hands = len(self._hands.attempts) - settling
        if self._batched:
            in_hands -= self._saved_by_batches()
        free = self._concurrency - in_hands
        ahead = self._ahead()
        budget = free + ahead
        # Under load wait until half of what lies ahead is used up: one large claim costs less than many small ones.
        if budget <= ahead * 3 // 4:
            return None
        if not self._order:
            self._claimed(0)
            return None
        self._order.append(self._order.pop(0))  # round robin between phases
        wants = []
        most = budget
        for lane in self._order:
            terms = self._registrar.terms(lane, now)
            if terms is None:
                continue
            limited = terms != (None, None) or lane.runner is lane.isolated
            limit = min(free, self._concurrency) if limited else min(budget, _MOST)
            if lane.phase.kind == "batch":
                limit = min(free * lane.phase.batch_size, _MOST)
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
        if not wants and free > 0:
            self._claimed(0)  # every phase is paused or held, which is as if nothing were due
        return Claim(self._worker, wants, None, min(most, _MOST)) if wants else None

    def _saved_by_batches(self) -> int:
        """How many hands fewer than attempts are needed, because a batch takes one."""
        counts = Counter(
            attempt.lane for attempt in list(self._hands.attempts.values()) if attempt.runner in self._batched
        )
        return sum(count - -(-count // lane.phase.batch_size) for lane, count in counts.items())

    def _rated_limit(self, lane: Lane, limit: int, now: datetime) -> int:
        room = self._rates.room(lane.pipeline, lane.phase, now)
        if room == 0:
            heappush(self._soon, self._rates.free_at(lane.pipeline, lane.phase, now))
        return limit if room is None else min(limit, room)

    def _give_back_unused(self, tasks: Sequence[Task]) -> None:
        """What the claim found keeps its part of the host until it is settled; the rest is free for others."""
        if not self._reserved:
            return
        reserved, self._reserved = self._reserved, {}
        found = self._by_lane(tasks)
        for lane, count in reserved.items():
            if (unused := count - len(found.get(lane, ()))) > 0:
                self._give_back(lane, unused)

    def _give_back(self, lane: Lane, count: int = 1) -> None:
        if lane.weight is not None and self._room is not None:
            self._room.give_back(lane.weight, count)

    def _admit(self, tasks: Sequence[Task], sent_at: float) -> list[Task]:
        """Of what was claimed, what may start by its phase's rate; the rest goes back before it began."""
        begun: list[Task] = []
        for lane, group in self._by_lane(tasks).items():
            if not lane.phase.rated:
                begun += group
                continue
            try:
                admitted, others = self._rates.admit(lane.pipeline, lane.phase, group)
            except StoreError:
                admitted, others = [], [(task, None) for task in group]
            begun += admitted
            for task, until in others:
                attempt = self._hands.attempts[task.task_id] = Attempt(task, lane, self._hands, sent_at)
                self._hands.finished.append((attempt, Unstarted(until)))
        return begun

    def _by_lane(self, tasks: Sequence[Task]) -> dict[Lane, list[Task]]:
        groups: dict[Lane, list[Task]] = {}
        for task in tasks:
            groups.setdefault(self._lanes[task.pipeline, task.phase], []).append(task)
        return groups

    def _claimed(self, found: int) -> None:
        self.found = found
        self.hungry = found > 0
        if not found:
            self._look_at = monotonic() + self._interval

    def _ahead(self) -> int:
        """How many tasks to claim beyond what can run at once: a moment's worth."""
        if self._run_for <= 0.0:
            return 0
        ahead = int(self._concurrency * _AHEAD_FOR / self._run_for)
        return 0 if ahead * 4 < self._concurrency else min(ahead, _MOST)

    def _begin(self, tasks: Sequence[Task], sent_at: float) -> None:
        by_runner: dict[int, list[Attempt]] = {}
        attempts = self._hands.attempts
        for task in tasks:
            attempt = Attempt(task, self._lanes[task.pipeline, task.phase], self._hands, sent_at)
            attempts[task.task_id] = attempt
            by_runner.setdefault(id(attempt.runner), []).append(attempt)
        for group in by_runner.values():
            group[0].runner.submit(group)

    # ── settling ──

    def _take_finished(self) -> list[tuple[Attempt, Outcome]]:
        batch = self._unsettled
        self._unsettled = []
        finished = self._hands.finished
        while finished and len(batch) < _MOST:
            batch.append(finished.popleft())
        return batch

    def _decide(
        self, batch: list[tuple[Attempt, Outcome]], now: datetime
    ) -> tuple[list[Move], list[tuple[Attempt, Outcome]]]:
        moves: list[Move] = []
        settling: list[tuple[Attempt, Outcome]] = []
        for attempt, outcome in batch:
            if type(outcome) is Failed and outcome.why.hold_phase:
                self._registrar.hold(attempt.lane, outcome.why, now)
            after = decide(attempt.task, attempt.lane.plan, outcome, now, self._worker)
            if after is None:
                self._let_go(attempt, lost=True)
                continue
            moves.append(Move(attempt.task, after))
            settling.append((attempt, outcome))
        return moves, settling

    def _reports(self) -> list[tuple[Attempt, Task]]:
        """Progress to write, of attempts that still run."""
        reports = []
        for attempt in self._registrar.due_reports(self._hands):
            text, attempt.progress_json = attempt.progress_json, None
            reports.append((attempt, rules.report(attempt.task, self._store.now(), progress=text)))
        return reports

    def _settled(self, attempt: Attempt, task: Task, outcome: Outcome) -> None:
        self._forget(attempt)
        if attempt.started_at is not None:
            taken = max(attempt.ended_at - attempt.started_at, 1e-5)
            self._run_for = self._run_for * 0.95 + taken * 0.05 if self._run_for else taken
        if task.status is WAITING:
            self._put_off(attempt.task, task)
        if (task.parent_id is not None or task.children is not None) and concerns(task):
            self.concerns_family(task)
        if self._statistics is not None:
            self._statistics(attempt.task, task, outcome)
        wanted = self._events.wanted
        if type(outcome) is Done and not wanted(TaskCompleted) and not wanted(TaskAdvanced):
            return
        for event in told(attempt.task, task, why_of(attempt, outcome)):
            self._events.send(event)

    def _put_off(self, before: Task, task: Task) -> None:
        if task.phase != before.phase:
            if (task.pipeline, task.phase) not in self._lanes:
                self.moved_on()
            else:
                self.hungry = True
        elif task.awaiting is None:
            heappush(self._soon, task.run_at)

    def _settle_again(self, again: Sequence[tuple[Attempt, Outcome]]) -> None:
        """Someone wrote meanwhile: read, look at the token, and decide anew."""
        stored = {task.task_id: task for task in self._store.fetch([attempt.task.task_id for attempt, _ in again])}
        for attempt, outcome in again:
            task = stored.get(attempt.task.task_id)
            if task is None or task.token != attempt.task.token:
                self._let_go(attempt, lost=True)
            elif task.status is not PROCESSING:
                self._settled(attempt, task, outcome)  # our own write had landed; only its answer was lost
            else:
                attempt.heard(task)
                self._hands.finished.append((attempt, outcome))

    def settle_singly(self) -> None:
        """After an error that the store blames on us: each outcome alone, so that one can't hold up the others."""
        batch = self._take_finished()
        for position, (attempt, outcome) in enumerate(batch):
            try:
                self._settle_one(attempt, outcome)
            except StoreUnavailable:
                self._unsettled = batch[position:]
                raise
            except Exception as error:
                why = failure(f"its outcome could not be recorded: {error}", "permanent")
                if isinstance(outcome, Failed) and outcome.why.message == why.message:
                    self._let_go(attempt, lost=True)  # the lease runs out, and a rescue decides
                else:
                    self._hands.finished.append((attempt, Failed(why)))

    def _settle_one(self, attempt: Attempt, outcome: Outcome) -> None:
        after = decide(attempt.task, attempt.lane.plan, outcome, self._store.now(), self._worker)
        if after is None:
            self._let_go(attempt, lost=True)
            return
        answer = self._store.swap([Move(attempt.task, after)])[0]
        if isinstance(answer, Swapped):
            self._settled(attempt, answer.task, outcome)
        else:
            self._settle_again([(attempt, outcome)])

    def _forget(self, attempt: Attempt) -> None:
        # The same turn may have claimed the task's next phase: that attempt is to stay.
        if self._hands.attempts.get(attempt.task.task_id) is attempt:
            del self._hands.attempts[attempt.task.task_id]
            self._give_back(attempt.lane)

    def _let_go(self, attempt: Attempt, *, lost: bool) -> None:
        self._forget(attempt)
        if lost:
            self._events.send(LeaseGone(attempt.task))

    @property
    def gathering(self) -> bool:
        """Whether short work is under way, so that waiting a moment makes the next turn's batch larger."""
        return len(self._hands.attempts) - len(self._hands.finished) > self._ahead() // 2 > 0

    def _rest(self, now: datetime, full: bool) -> float:
        """`full`: there may be more to claim and no hand is free, so only an end of what runs changes anything."""
        full = full and not self.gathering
        if self._hands.finished or (self.hungry and self.claiming and not full):
            return 0.0
        rest = max(0.0, self._look_at - monotonic()) if self.claiming and not full else self._interval
        if self._soon:
            rest = min(rest, max(0.0, (self._soon[0] - now) / timedelta(seconds=1)))
        if any(attempt.progress_json is not None for attempt in list(self._hands.attempts.values())):
            rest = min(rest, 0.25)
        return rest


def why_of(attempt: Attempt, outcome: Outcome) -> Failure | None:
    """The failure in an outcome, if there is one."""
    match outcome:
        case Failed(why=why) | Crashed(why=why):
            return why
        case Stopped(reason="timeout"):
            return timed_out(attempt.task, attempt.lane.plan)
    return None
