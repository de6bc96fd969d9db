"""The producer: write finished outcomes and claim new tasks in one call to the store."""

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
from onerow.engine.events.events import Events, TaskAdvanced, TaskCompleted, TaskLeaseLost
from onerow.engine.handler.outcome import (
    Crashed,
    Done,
    Failed,
    Outcome,
    Stopped,
    Unstarted,
    decide,
    events_of,
    timed_out,
)
from onerow.engine.queue.children import concerns
from onerow.engine.queue.lost_claims import LostClaims
from onerow.engine.runners.attempt import Attempt, ServedPhase
from onerow.engine.worker.claim_planner import MOST, ClaimPlanner
from onerow.engine.worker.host_resources import HostResources
from onerow.engine.worker.in_flight import InFlight
from onerow.engine.worker.roles.controls import PhaseControls
from onerow.ports import Claim, Move, Store, SwapAnswer, Swapped

_MANY = 100  # tasks in a claim from which on it pays to prepare the next round while the store works
_GATHER_FOR = 0.001
_LOOK_AGAIN = 0.01
_MOST_LEFT = 1000  # abandoned leases to remember before expired ones are removed

Finished = list[tuple[Attempt, Outcome]]
Answer = tuple[list[SwapAnswer], list[Task]]


@dataclass
class Round:
    """One call to the store: what it writes and what it claims."""

    finished: Finished  # all outcomes taken from InFlight for this round
    settling: Finished  # the outcomes that are written, in the order of the first moves
    reports: list[tuple[Attempt, Task]]  # progress; their moves follow those of `settling`
    moves: list[Move]
    claim: Claim | None
    sent_at: float
    call: "Future[Answer] | None" = None  # set while the call runs in another thread


class Producer:
    """Settle finished attempts and claim new tasks; `run_round()` does one round.

    Under load, with `overlap`, the store executes one round while the previous one is finished and the next prepared.
    """

    def __init__(
        self,
        store: Store,
        worker: str,
        in_flight: InFlight,
        served_phases: Sequence[ServedPhase],
        controls: PhaseControls,
        events: Events,
        *,
        concurrency: int,
        interval: float,
        statistics: Callable[[Task, Task, Outcome], None] | None = None,
        host_resources: HostResources | None = None,
        overlap: bool = False,
        suspects_starting: int | None = None,
    ) -> None:
        self._store = store
        self._worker = worker
        self._in_flight = in_flight
        self._served = {(served.pipeline, served.phase.name): served for served in served_phases}
        self._controls = controls
        self._events = events
        self._interval = interval
        self._statistics = statistics
        self._planner = ClaimPlanner(
            store,
            worker,
            in_flight,
            served_phases,
            controls,
            concurrency=concurrency,
            host_resources=host_resources,
            suspects_starting=suspects_starting,
        )
        self._planner.on_rate_free = lambda moment: heappush(self._soon, moment)
        longest = max((served.lease for served in served_phases), default=0.0)
        self._lost_claims = LostClaims(store, worker, longest, self._holds)
        self._left: dict[tuple[str, int], float] = {}  # leases abandoned to a rescue, and since when
        self._longest_lease = longest
        self._soon: list[datetime] = []  # heap: when postponed tasks are due again
        self._unsettled: Finished = []
        self._under_way: Round | None = None
        self._overlap = overlap and self._planner.simple
        self._thread = ThreadPoolExecutor(1, "onerow-turn")
        self._full = False  # tasks may be due, but all of the concurrency is used
        self._look_at = 0.0
        self.claiming = True
        self.may_be_due = True
        self.reached_codeless_phase: Callable[[], None] = lambda: (
            None
        )  # called when a task reaches a phase without code
        self.parent_or_child_changed: Callable[[Task], None] = lambda task: None
        self.found = 0  # tasks that the last claim returned
        self.store_answered = False  # in the last round; a round with nothing to write or claim makes no store call

    @property
    def soon(self) -> Sequence[datetime]:
        """Times at which postponed tasks, or phases whose rate is used up, can be claimed again."""
        return self._soon

    @property
    def busy(self) -> bool:
        """Whether a round is under way whose answer has not been processed."""
        return self._under_way is not None

    def run_round(self) -> float:
        """Do one round; return the seconds until the next, unless the worker is woken (0: at once)."""
        self.store_answered = False
        if self._lost_claims.due and self._under_way is None:
            self.look_for_lost_claims()
        self._gather()
        now = self._store.now()
        round_ = self._prepare(now)
        before, self._under_way = self._under_way, None
        if round_ is None:
            if before is not None:
                self._finish(before)
                return 0.0
            return self._rest(now)
        # The search for lost claims needs a moment without a claim under way.
        if self._overlap and round_.claim is not None and self.found >= _MANY and not self._lost_claims.due:
            round_.call = self._thread.submit(self._store.settle_and_claim, round_.moves, round_.claim)
            self._under_way = round_
            if before is not None:
                self._finish(before)
            return 0.0
        try:
            if before is not None:
                self._finish(before)
        except BaseException:
            self._take_back(round_.finished)
            raise
        self._finish(round_)
        return self._rest(now)

    def close(self) -> None:
        """End the thread of overlapping rounds; no round may follow."""
        self._thread.shutdown(wait=False)

    def _gather(self) -> None:
        """Wait while the previous round is under way, so that the next one settles more attempts."""
        while (
            self._under_way is not None
            and self._under_way.call is not None
            and self._running() * 4 > self._planner.ahead()
            and not self._under_way.call.done()
        ):
            wait((self._under_way.call,), _GATHER_FOR)

    def _prepare(self, now: datetime) -> Round | None:
        """Return the next round, or None if it would write and claim nothing."""
        finished = self._take_finished()
        try:
            if self._soon and self._soon[0] <= now:
                self.look()
                while self._soon and self._soon[0] <= now:
                    heappop(self._soon)
            if monotonic() >= self._look_at:
                self.look()
            if finished:  # an ended attempt frees concurrency, and perhaps a slot of a limit
                self.may_be_due = True
                self._planner.freed(attempt.served for attempt, _ in finished)
            moves, settling = self._decide(finished, now)
            claim = self._claim(len(settling), now) if self.may_be_due and self.claiming else None
            self._full = self.may_be_due and claim is None
            reports = self._reports()
        except BaseException:
            self._take_back(finished)
            raise
        if not moves and not reports and claim is None:
            return None
        moves += [Move(attempt.task, task) for attempt, task in reports]
        return Round(finished, settling, reports, moves, claim, monotonic())

    def _claim(self, settling: int, now: datetime) -> Claim | None:
        coming = 0
        if self._under_way is not None:
            settling += len(self._under_way.settling)
            if self._under_way.claim is not None:
                coming = self._under_way.claim.limit or 0
        claim = self._planner.claim(settling, coming, now)
        if claim is not None and not claim.phases:
            self._claimed(claim, ())  # every phase is paused or held: the same as nothing due
            return None
        return claim

    def _finish(self, round_: Round) -> None:
        """Get the store's answer, calling it now unless the call is under way, and apply it."""
        tasks: list[Task] = []
        try:
            try:
                if round_.call is None:
                    answers, tasks = self._store.settle_and_claim(round_.moves, round_.claim)
                else:
                    answers, tasks = round_.call.result()
            finally:
                self._planner.give_back_unused(tasks)
            self.store_answered = True
            self._begin(tasks, round_.sent_at)
            if round_.claim is not None:
                self._claimed(round_.claim, tasks)
            again: Finished = []
            for (attempt, outcome), answer in zip(round_.settling, answers, strict=False):
                if type(answer) is Swapped:
                    self._settled(attempt, answer.task, outcome)
                else:
                    again.append((attempt, outcome))
            for (attempt, _), answer in zip(round_.reports, answers[len(round_.settling) :], strict=True):
                if type(answer) is Swapped:
                    attempt.heard(answer.task)
            if again:
                self._settle_again(again)
        except BaseException:
            self._take_back(round_.finished)
            if round_.claim is not None:
                self._lost_claims.expect()
            raise

    def look_for_lost_claims(self) -> None:
        """After a failed round, hand back tasks that the store leased to this worker although its answer was lost."""
        if self._lost_claims.expected and self._under_way is None and self._lost_claims.look():
            self.may_be_due = True

    def _holds(self, task: Task) -> bool:
        attempt = self._in_flight.attempts.get(task.task_id)
        return (attempt is not None and attempt.task.token == task.token) or (task.task_id, task.token) in self._left

    def _take_back(self, finished: Finished) -> None:
        # Attempts known to be settled are no longer in flight. The others may or may not have been written: the next
        # settle finds out by their tokens.
        attempts = self._in_flight.attempts
        self._unsettled += [each for each in finished if attempts.get(each[0].task.task_id) is each[0]]

    # ── claiming ──

    def look(self) -> None:
        """Assume that tasks may be due in any phase; safe from any thread."""
        self._planner.phases.look()
        self.may_be_due = True

    def _claimed(self, claim: Claim, tasks: Sequence[Task]) -> None:
        found = self.found = len(tasks)
        more = self._planner.phases.claimed(claim, tasks)
        self.may_be_due = 0 < (claim.limit or 0) <= found or more
        if not self.may_be_due:
            # Fewer tasks than the limit: no more are due, unless other workers claim at the same time. Another claim
            # at once would only delay the handlers.
            self._look_at = monotonic() + (_LOOK_AGAIN if found else self._interval)

    def _begin(self, tasks: Sequence[Task], sent_at: float) -> None:
        if not tasks:
            return
        # Tasks of a claim that was under way when the drain began are handed back.
        begun, others = self._planner.admit(tasks) if self.claiming else ((), [(task, None) for task in tasks])
        by_runner: dict[int, list[Attempt]] = {}
        attempts = self._in_flight.attempts
        for task in begun:
            attempt = Attempt(task, self._served[task.pipeline, task.phase], self._in_flight, sent_at)
            attempts[task.task_id] = attempt
            by_runner.setdefault(id(attempt.runner), []).append(attempt)
        for group in by_runner.values():
            group[0].runner.submit(group)
        for task, until in others:
            attempt = attempts[task.task_id] = Attempt(
                task, self._served[task.pipeline, task.phase], self._in_flight, sent_at
            )
            self._in_flight.finished.append((attempt, Unstarted(until)))

    # ── settling ──

    def _take_finished(self) -> Finished:
        taken, self._unsettled = self._unsettled, []
        finished = self._in_flight.finished
        while finished and len(taken) < MOST:
            taken.append(finished.popleft())
        return taken

    def _decide(self, finished: Finished, now: datetime) -> tuple[list[Move], Finished]:
        moves: list[Move] = []
        settling: Finished = []
        if finished:
            self._controls.refresh_plans(now)
        for attempt, outcome in finished:
            if type(outcome) is Failed and outcome.why.hold_phase:
                self._controls.hold(attempt.served, outcome.why, now)
            after = self._after(attempt, outcome, now)
            if after is None:
                self._let_go(attempt, lost=True)
                continue
            moves.append(Move(attempt.task, after))
            settling.append((attempt, outcome))
        return moves, settling

    def _after(self, attempt: Attempt, outcome: Outcome, now: datetime) -> Task | None:
        own = attempt.served.plan
        return decide(attempt.task, self._controls.plan_of(attempt.served), outcome, now, self._worker, own=own)

    def _reports(self) -> list[tuple[Attempt, Task]]:
        """Return the progress to write for running attempts."""
        reports = []
        for attempt in self._controls.due_reports(self._in_flight):
            text, attempt.progress_json = attempt.progress_json, None
            reports.append((attempt, rules.report(attempt.task, self._store.now(), progress=text)))
        return reports

    def _settled(self, attempt: Attempt, task: Task, outcome: Outcome) -> None:
        self._forget(attempt)
        if attempt.started_at is not None:
            self._planner.record_duration(attempt.ended_at - attempt.started_at)
        if task.status is WAITING:
            self._note_next_due(attempt.task, task)
        if (task.parent_id is not None or task.children is not None) and concerns(task):
            self.parent_or_child_changed(task)
        if self._statistics is not None:
            self._statistics(attempt.task, task, outcome)
        wanted = self._events.wanted
        if type(outcome) is Done and not wanted(TaskCompleted) and not wanted(TaskAdvanced):
            return
        for event in events_of(attempt.task, task, why_of(attempt, outcome)):
            self._events.send(event)

    def _note_next_due(self, before: Task, task: Task) -> None:
        if task.phase != before.phase:
            if (task.pipeline, task.phase) not in self._served:
                self.reached_codeless_phase()
            else:
                self.may_be_due = True
                self._planner.phases.add(task.pipeline, task.phase)
        elif task.awaiting is None:
            heappush(self._soon, task.run_at)

    def _settle_again(self, again: Sequence[tuple[Attempt, Outcome]]) -> None:
        """Read rows that were written concurrently, check their tokens, and decide again."""
        stored = {task.task_id: task for task in self._store.fetch([attempt.task.task_id for attempt, _ in again])}
        for attempt, outcome in again:
            task = stored.get(attempt.task.task_id)
            if task is None or task.token != attempt.task.token:
                self._let_go(attempt, lost=True)
            elif task.status is not PROCESSING:
                self._settled(attempt, task, outcome)  # this worker's write succeeded; only the answer was lost
            else:
                attempt.heard(task)
                self._in_flight.finished.append((attempt, outcome))

    def settle_singly(self) -> None:
        """Settle each outcome in its own call, after an error, so that one bad row does not block the others."""
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
                    self._let_go(attempt, lost=True)  # the lease expires, and a rescue decides
                else:
                    self._in_flight.finished.append((attempt, Failed(why)))

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
        # The same round may have claimed the task's next phase: keep that attempt.
        if self._in_flight.attempts.get(attempt.task.task_id) is attempt:
            del self._in_flight.attempts[attempt.task.task_id]
            self._planner.give_back(attempt.served)

    def _let_go(self, attempt: Attempt, *, lost: bool) -> None:
        self._forget(attempt)
        if lost:
            self._leave(attempt.task)
            self._events.send(TaskLeaseLost(attempt.task))

    def _leave(self, task: Task) -> None:
        """Remember an abandoned lease: its work may still run, so it must not be handed back before the lease ends."""
        clock = monotonic()
        if len(self._left) >= _MOST_LEFT:
            self._left = {key: since for key, since in self._left.items() if clock - since < self._longest_lease}
        self._left[task.task_id, task.token] = clock

    @property
    def gathering(self) -> bool:
        """Whether short attempts are running, so that a short wait makes the next round's batch larger."""
        return self._running() > min(self._planner.ahead(), MOST) // 2 > 0

    def _running(self) -> int:
        """Return the number of attempts that have not ended."""
        settling = 0 if self._under_way is None else len(self._under_way.settling)
        return len(self._in_flight.attempts) - len(self._in_flight.finished) - settling

    def _rest(self, now: datetime) -> float:
        """Return the seconds until the next round; with all concurrency used, only the end of an attempt matters."""
        full = self._full and not self.gathering
        if self._in_flight.finished or (self.may_be_due and self.claiming and not full):
            return 0.0
        rest = max(0.0, self._look_at - monotonic()) if self.claiming and not full else self._interval
        if self._soon:
            rest = min(rest, max(0.0, (self._soon[0] - now) / timedelta(seconds=1)))
        if any(attempt.progress_json is not None for attempt in list(self._in_flight.attempts.values())):
            rest = min(rest, 0.25)
        return rest


def why_of(attempt: Attempt, outcome: Outcome) -> Failure | None:
    """Return the failure of an outcome, if there is one."""
    match outcome:
        case Failed(why=why) | Crashed(why=why):
            return why
        case Stopped(reason="timeout"):
            return timed_out(attempt.task, attempt.served.plan)
    return None
