"""The turn: write what finished, claim what fits, in one call to the store."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import heappop, heappush
from time import monotonic

from onerow.core import rules
from onerow.core.errors import StoreUnavailable
from onerow.core.failure import Failure, failure
from onerow.core.status import PROCESSING, WAITING
from onerow.core.task import Task
from onerow.engine.events import Events, LeaseGone, TaskAdvanced, TaskCompleted
from onerow.engine.family import concerns
from onerow.engine.settling import Crashed, Done, Failed, Outcome, Stopped, Unstarted, decide, timed_out, told
from onerow.engine.worker.appetite import MOST, Appetite
from onerow.engine.worker.attempt import Attempt, Lane
from onerow.engine.worker.hands import Hands
from onerow.engine.worker.registrar import Registrar
from onerow.engine.worker.room import Room
from onerow.ports import Claim, Move, Store, SwapAnswer, Swapped

_MANY = 100  # tasks in a claim that make it worth while to prepare the next turn meanwhile
_GATHER_FOR = 0.001
_LOOK_AGAIN = 0.01

Finished = list[tuple[Attempt, Outcome]]
Answer = tuple[list[SwapAnswer], list[Task]]


@dataclass
class Turn:
    """What one call to the store is to write and to claim."""

    finished: Finished  # all that it took out of our hands
    settling: Finished  # those of them that it writes, in the order of its first moves
    reports: list[tuple[Attempt, Task]]  # progress, the moves after those
    moves: list[Move]
    claim: Claim | None
    sent_at: float
    call: "Future[Answer] | None" = None  # the store is at it, in another thread


class Turner:
    """Settles and claims. `turn()` is one round; it returns how long to rest (0: not at all).

    Under load, with `overlap`, the store writes one turn while we finish the one before and prepare the next.
    """

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
        overlap: bool = False,
    ) -> None:
        self._store = store
        self._worker = worker
        self._hands = hands
        self._lanes = {(lane.pipeline, lane.phase.name): lane for lane in lanes}
        self._registrar = registrar
        self._events = events
        self._interval = interval
        self._statistics = statistics
        self._appetite = Appetite(store, worker, hands, lanes, registrar, concurrency=concurrency, room=room)
        self._appetite.free_again = lambda moment: heappush(self._soon, moment)
        self._soon: list[datetime] = []  # when tasks that we put off are due again
        self._unsettled: Finished = []
        self._under_way: Turn | None = None
        self._overlap = overlap and self._appetite.simple
        self._thread = ThreadPoolExecutor(1, "onerow-turn")
        self._full = False  # there may be more to claim, and no hand was free for it
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

    @property
    def busy(self) -> bool:
        """Whether the store is at a turn of which we have not heard yet."""
        return self._under_way is not None

    def turn(self) -> float:
        """One round: how many seconds to rest until the next, unless something happens."""
        self._gather()
        now = self._store.now()
        turn = self._prepare(now)
        before, self._under_way = self._under_way, None
        if turn is None:
            if before is not None:
                self._finish(before)
                return 0.0
            return self._rest(now)
        if self._overlap and turn.claim is not None and self.found >= _MANY:
            turn.call = self._thread.submit(self._store.turn, turn.moves, turn.claim)
            self._under_way = turn
            if before is not None:
                self._finish(before)
            return 0.0
        try:
            if before is not None:
                self._finish(before)
        except BaseException:
            self._take_back(turn.finished)
            raise
        self._finish(turn)
        return self._rest(now)

    def close(self) -> None:
        """No turn follows; the thread of those that overlapped ends."""
        self._thread.shutdown(wait=False)

    def _gather(self) -> None:
        """While the store is at the last turn, there is time for more to end that the next one can write."""
        while (
            self._under_way is not None
            and self._under_way.call is not None
            and self._running() * 4 > self._appetite.ahead()
            and not self._under_way.call.done()
        ):
            wait((self._under_way.call,), _GATHER_FOR)

    def _prepare(self, now: datetime) -> Turn | None:
        """The next turn; None: there is nothing to write, and nothing to claim or no hand free for it."""
        finished = self._take_finished()
        try:
            if self._soon and self._soon[0] <= now:
                self.look()
                while self._soon and self._soon[0] <= now:
                    heappop(self._soon)
            if monotonic() >= self._look_at:
                self.look()
            if finished:  # whatever ended left a hand free, and perhaps a slot that others wait for
                self.hungry = True
                self._appetite.freed(attempt.lane for attempt, _ in finished)
            moves, settling = self._decide(finished, now)
            claim = self._claim(len(settling), now) if self.hungry and self.claiming else None
            self._full = self.hungry and claim is None
            reports = self._reports()
        except BaseException:
            self._take_back(finished)
            raise
        if not moves and not reports and claim is None:
            return None
        moves += [Move(attempt.task, task) for attempt, task in reports]
        return Turn(finished, settling, reports, moves, claim, monotonic())

    def _claim(self, settling: int, now: datetime) -> Claim | None:
        coming = 0
        if self._under_way is not None:
            settling += len(self._under_way.settling)
            if self._under_way.claim is not None:
                coming = self._under_way.claim.limit or 0
        claim = self._appetite.claim(settling, coming, now)
        if claim is not None and not claim.wants:
            self._claimed(claim, ())  # every phase is paused or held, which is as if nothing were due
            return None
        return claim

    def _finish(self, turn: Turn) -> None:
        """The store has made the turn, or makes it now: what it answered."""
        tasks: list[Task] = []
        try:
            try:
                call = turn.call
                answers, tasks = self._store.turn(turn.moves, turn.claim) if call is None else call.result()
            finally:
                self._appetite.give_back_unused(tasks)
            self._begin(tasks, turn.sent_at)
            if turn.claim is not None:
                self._claimed(turn.claim, tasks)
            again: Finished = []
            for (attempt, outcome), answer in zip(turn.settling, answers, strict=False):
                if type(answer) is Swapped:
                    self._settled(attempt, answer.task, outcome)
                else:
                    again.append((attempt, outcome))
            for (attempt, _), answer in zip(turn.reports, answers[len(turn.settling) :], strict=True):
                if type(answer) is Swapped:
                    attempt.heard(answer.task)
            if again:
                self._settle_again(again)
        except BaseException:
            self._take_back(turn.finished)
            raise

    def _take_back(self, finished: Finished) -> None:
        # Whether they landed or not, the tokens will tell; those that we know to have landed are out of our hands.
        attempts = self._hands.attempts
        self._unsettled += [each for each in finished if attempts.get(each[0].task.task_id) is each[0]]

    # ── claiming ──

    def look(self) -> None:
        """Something may be due in any phase; safe from any thread."""
        self._appetite.phases.look()
        self.hungry = True

    def _claimed(self, claim: Claim, tasks: Sequence[Task]) -> None:
        found = self.found = len(tasks)
        more = self._appetite.phases.claimed(claim, tasks)
        self.hungry = 0 < (claim.limit or 0) <= found or more
        if not self.hungry:
            # What fell short of the limit was all that is due, unless others claim beside us. To look again at once
            # would only keep the handlers from beginning.
            self._look_at = monotonic() + (_LOOK_AGAIN if found else self._interval)

    def _begin(self, tasks: Sequence[Task], sent_at: float) -> None:
        if not tasks:
            return
        # A claim that was under way when we were told to drain is given back as it came.
        begun, others = self._appetite.admit(tasks) if self.claiming else ((), [(task, None) for task in tasks])
        by_runner: dict[int, list[Attempt]] = {}
        attempts = self._hands.attempts
        for task in begun:
            attempt = Attempt(task, self._lanes[task.pipeline, task.phase], self._hands, sent_at)
            attempts[task.task_id] = attempt
            by_runner.setdefault(id(attempt.runner), []).append(attempt)
        for group in by_runner.values():
            group[0].runner.submit(group)
        for task, until in others:
            attempt = attempts[task.task_id] = Attempt(
                task, self._lanes[task.pipeline, task.phase], self._hands, sent_at
            )
            self._hands.finished.append((attempt, Unstarted(until)))

    # ── settling ──

    def _take_finished(self) -> Finished:
        taken, self._unsettled = self._unsettled, []
        finished = self._hands.finished
        while finished and len(taken) < MOST:
            taken.append(finished.popleft())
        return taken

    def _decide(self, finished: Finished, now: datetime) -> tuple[list[Move], Finished]:
        moves: list[Move] = []
        settling: Finished = []
        if finished:
            self._registrar.refresh_plans(now)
        for attempt, outcome in finished:
            if type(outcome) is Failed and outcome.why.hold_phase:
                self._registrar.hold(attempt.lane, outcome.why, now)
            after = self._after(attempt, outcome, now)
            if after is None:
                self._let_go(attempt, lost=True)
                continue
            moves.append(Move(attempt.task, after))
            settling.append((attempt, outcome))
        return moves, settling

    def _after(self, attempt: Attempt, outcome: Outcome, now: datetime) -> Task | None:
        own = attempt.lane.plan
        return decide(attempt.task, self._registrar.plan_of(attempt.lane), outcome, now, self._worker, own=own)

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
            self._appetite.learn(attempt.ended_at - attempt.started_at)
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
                self._appetite.phases.add(task.pipeline, task.phase)
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
        after = self._after(attempt, outcome, self._store.now())
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
            self._appetite.give_back(attempt.lane)

    def _let_go(self, attempt: Attempt, *, lost: bool) -> None:
        self._forget(attempt)
        if lost:
            self._events.send(LeaseGone(attempt.task))

    @property
    def gathering(self) -> bool:
        """Whether short work is under way, so that waiting a moment makes the next turn's batch larger."""
        return self._running() > min(self._appetite.ahead(), MOST) // 2 > 0

    def _running(self) -> int:
        """Attempts that have not ended."""
        told = 0 if self._under_way is None else len(self._under_way.settling)
        return len(self._hands.attempts) - len(self._hands.finished) - told

    def _rest(self, now: datetime) -> float:
        """If there may be more to claim and no hand is free, only an end of what runs changes anything."""
        full = self._full and not self.gathering
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
