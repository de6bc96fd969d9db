"""The producer: write finished outcomes and claim new tasks in one call to the store."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from heapq import heappop, heappush
from time import monotonic

from msgspec.structs import replace

from onerow.core import rules
from onerow.core.errors import StoreUnavailable
from onerow.core.failure import failure
from onerow.core.plan import Plan
from onerow.core.retention import Retention
from onerow.core.rules.attempts import Done, Failed, Outcome, Snoozed, Unready, Unstarted, failure_of
from onerow.core.status import PROCESSING, WAITING
from onerow.core.task import Task
from onerow.engine.events.events import Events, ResourceFailed, TaskAdvanced, TaskCompleted, TaskLeaseLost, events_of
from onerow.engine.queue.children import concerns
from onerow.engine.queue.compare_and_swap import apply
from onerow.engine.queue.lost_claims import LostClaims
from onerow.engine.runners.attempt import Attempt, InFlight, ServedPhase
from onerow.engine.worker.claim_planner import MOST, ClaimPlanner
from onerow.engine.worker.counters import Counters
from onerow.engine.worker.roles.controls import PhaseControls
from onerow.ports import Claim, Move, Store, SwapAnswer, Swapped

_MANY = 100  # tasks in a claim from which on it pays to prepare the next round while the store works
_GATHER_FOR = 0.001
_LOOK_AGAIN = 0.01

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
        overlap: bool = False,
        suspects_starting: int | None = None,
        retention: Retention | None = None,
    ) -> None:
        self._store = store
        self._retention = retention or Retention()
        self._worker = worker
        self._in_flight = in_flight
        self._served = {(served.pipeline, served.phase.name): served for served in served_phases}
        self._controls = controls
        self._events = events
        self._interval = interval
        self._statistics = statistics
        self.counters = Counters()
        self._planner = ClaimPlanner(
            store,
            worker,
            in_flight,
            served_phases,
            controls,
            concurrency=concurrency,
            suspects_starting=suspects_starting,
            counters=self.counters,
        )
        self._planner.on_rate_free = lambda moment: heappush(self.soon, moment)
        longest = max((served.lease for served in served_phases), default=0.0)
        self._lost_claims = LostClaims(store, worker, longest, in_flight.holds)
        self.soon: list[datetime] = []  # heap: when postponed tasks are due, and used-up rates are free again
        self._unsettled: Finished = []
        self.under_way: Round | None = None  # sent in the other thread, and its answer not yet applied
        self._overlap = overlap
        self._thread = ThreadPoolExecutor(1, "onerow-round")
        if overlap:
            self._thread.submit(lambda: None)  # start the thread now: later the process may lack the resources
        self._full = False  # tasks may be due, but all of the concurrency is used
        self._look_at = 0.0
        self.claiming = True
        self.may_be_due = True
        self.reached_codeless_phase: Callable[[], None] = lambda: None
        self.parent_or_child_changed: Callable[[Task], None] = lambda task: None
        self.found = 0  # tasks that the last claim returned
        self.store_answered = False  # in the last round; a round with nothing to write or claim makes no store call

    def run_round(self) -> float:
        """Do one round; return the seconds until the next, unless the worker is woken (0: at once)."""
        self.store_answered = False
        searching = self._lost_claims.expected and self._lost_claims.due
        if searching and self.under_way is None:
            self.look_for_lost_claims()
            searching = False
        if self.under_way is not None:
            self._gather(self.under_way)
        now = self._store.now()
        round_ = self._prepare(now)
        before, self.under_way = self.under_way, None
        if round_ is None:
            if before is None:
                return self._rest(now)
            self._receive(before)
            return 0.0
        # The search for lost claims needs a moment without a claim under way.
        overlaps = self._overlap and self.found >= _MANY and self._planner.simple
        if overlaps and round_.claim is not None and not searching:
            round_.call = self._thread.submit(self._store.settle_and_claim, round_.moves, round_.claim)
            self.under_way = round_
            if before is not None:
                self._receive(before)
            return 0.0
        try:
            if before is not None:
                self._receive(before)
            answers, tasks = self._store.settle_and_claim(round_.moves, round_.claim)
        except BaseException:
            self._failed(round_)
            raise
        self._apply(round_, answers, tasks)
        return self._rest(now)

    def close(self) -> None:
        """End the thread of overlapping rounds; no round may follow."""
        self._thread.shutdown(wait=False)

    def _gather(self, before: Round) -> None:
        """Wait while the previous round is under way, so that the next one settles more attempts."""
        call = before.call
        while call is not None and self._running() * 4 > self._planner.ahead() and not call.done():
            wait((call,), _GATHER_FOR)

    def _prepare(self, now: datetime) -> Round | None:
        """Return the next round, or None if it would write and claim nothing."""
        finished = self._take_finished()
        try:
            if self.soon and self.soon[0] <= now:
                self.look()
                while self.soon and self.soon[0] <= now:
                    heappop(self.soon)
            if monotonic() >= self._look_at:
                self.look()
            if finished:  # an ended attempt frees concurrency, and perhaps a slot of a limit
                self.may_be_due = True
                self._planner.freed(attempt.served for attempt, _ in finished)
            moves, settling = self._decide(finished, now)
            claim = self._claim(len(settling), now) if self.may_be_due and self.claiming else None
            self._full = self.may_be_due and claim is None
            if self._full and self.claiming:
                self.counters.limited_concurrency += 1
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
        if self.under_way is not None:
            settling += len(self.under_way.settling)
            if self.under_way.claim is not None:
                coming = self.under_way.claim.limit or 0
        claim = self._planner.claim(settling, coming, now)
        if claim is not None and not claim.phases:
            self._claimed(claim, ())  # every phase is paused or held: the same as nothing due
            return None
        return claim

    def _receive(self, round_: Round) -> None:
        """Apply the answer to a round that was sent in the other thread."""
        assert round_.call is not None
        try:
            answers, tasks = round_.call.result()
        except BaseException:
            self._failed(round_)
            raise
        self._apply(round_, answers, tasks)

    def _apply(self, round_: Round, answers: list[SwapAnswer], tasks: list[Task]) -> None:
        """Start the claimed tasks, and forget the attempts that are settled."""
        self.store_answered = True
        try:
            self._begin(tasks, round_.sent_at)
            if round_.claim is not None:
                if tasks:
                    self.counters.claims_got += 1
                else:
                    self.counters.claims_empty += 1
                self._claimed(round_.claim, tasks)
            again: list[tuple[Attempt, Outcome, Move]] = []
            for (attempt, outcome), move, answer in zip(round_.settling, round_.moves, answers, strict=False):
                if type(answer) is Swapped:
                    self._settled(attempt, answer.task, outcome)
                else:
                    again.append((attempt, outcome, move))
            for (attempt, _), answer in zip(round_.reports, answers[len(round_.settling) :], strict=True):
                if type(answer) is Swapped:
                    attempt.heard(answer.task)
            if again:
                self._settle_again(again)
        except BaseException:
            self._failed(round_)
            raise

    def _failed(self, round_: Round) -> None:
        """Keep the outcomes of a failed round, and expect tasks that the store claimed all the same."""
        self._take_back(round_.finished)
        if round_.claim is not None:
            self._lost_claims.expect()

    def look_for_lost_claims(self) -> None:
        """After a failed round, hand back tasks that the store leased to this worker although its answer was lost."""
        if self._lost_claims.expected and self.under_way is None and self._lost_claims.look():
            self.may_be_due = True

    def _take_back(self, finished: Finished) -> None:
        # Those that are not reported may or may not have been written: the next settle finds out.
        self._unsettled += [each for each in finished if not each[0].reported]

    # ── claiming ──

    @property
    def has_put_off_suspects(self) -> bool:
        """Whether tasks that were due wait for a moment, so that few of their processes start at once."""
        return self._store.now() <= self._planner.suspects_until

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
        if self.claiming:
            postponed = self._planner.postponed(tasks)
        else:  # the claim was under way when the drain began
            postponed = dict.fromkeys(task.task_id for task in tasks)
        by_runner: dict[int, list[Attempt]] = {}
        attempts = self._in_flight.attempts
        for task in tasks:
            attempt = Attempt(task, self._served[task.pipeline, task.phase], self._in_flight, sent_at)
            attempts[task.task_id] = attempt
            if postponed and task.task_id in postponed:
                self._in_flight.finished.append((attempt, Unstarted(postponed[task.task_id])))
            else:
                by_runner.setdefault(id(attempt.runner), []).append(attempt)
        for group in by_runner.values():
            group[0].runner.submit(group)

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
                self._controls.hold(attempt.served, outcome.why.after, outcome.why.message, now)
            elif type(outcome) is Snoozed and outcome.hold_phase:
                self._controls.hold(attempt.served, outcome.for_, outcome.reason, now)
            plan = self._controls.plan_of(attempt.served)
            after = self._after(attempt, outcome, plan, now)
            if after is None:
                self._lose(attempt)
                continue
            remove = after.completed_at is not None and self._retention.deletes_at_end(after, plan)
            moves.append(Move(attempt.task, after, False, remove))
            settling.append((attempt, outcome))
        return moves, settling

    def _after(self, attempt: Attempt, outcome: Outcome, plan: Plan, now: datetime) -> Task | None:
        """Return the task after its attempt; None if the lease was lost."""
        task = attempt.task
        if attempt.progress_json is not None:  # reported since the last write of progress
            task = replace(task, progress_json=attempt.progress_json)
        return rules.decide(task, plan, outcome, now, self._worker, own=attempt.served.plan)

    def _reports(self) -> list[tuple[Attempt, Task]]:
        """Return the progress to write for running attempts."""
        reports = []
        for attempt in self._in_flight.due_reports():
            text, attempt.progress_json = attempt.progress_json, None
            reports.append((attempt, rules.report(attempt.task, self._store.now(), progress=text)))
        return reports

    def _settled(self, attempt: Attempt, task: Task, outcome: Outcome) -> None:
        self._forget(attempt)
        self.counters.settled += 1
        self._planner.record(attempt)
        if task.status is WAITING:
            self._note_next_due(attempt.task, task)
        if concerns(task):
            self.parent_or_child_changed(task)
        if self._statistics is not None:
            self._statistics(attempt.task, task, outcome)
        if type(outcome) is Unready:
            self._events.send(ResourceFailed(f"{outcome.why}; task {task.task_id} of {task.phase} waits for it"))
        wanted = self._events.wanted
        if type(outcome) is Done and not wanted(TaskCompleted) and not wanted(TaskAdvanced):
            return
        for event in events_of(task, attempt.task, failure_of(attempt.task, attempt.served.plan, outcome)):
            self._events.send(event)

    def _note_next_due(self, before: Task, task: Task) -> None:
        if task.phase != before.phase:
            if (task.pipeline, task.phase) not in self._served:
                self.reached_codeless_phase()
            else:
                self.may_be_due = True
                self._planner.phases.add(task.pipeline, task.phase)
        elif task.awaiting is None:
            heappush(self.soon, task.run_at)

    def _settle_again(self, again: Sequence[tuple[Attempt, Outcome, Move]]) -> None:
        """Read rows that were written concurrently: decide again if the lease is held, else find out what was written."""
        stored = {task.task_id: task for task in self._store.fetch([attempt.task.task_id for attempt, *_ in again])}
        unbegun: dict[str, Task] = {}
        for attempt, outcome, move in again:
            task = stored.get(attempt.task.task_id)
            if task is not None and task.token == attempt.task.token and task.status is PROCESSING:
                attempt.heard(task)
                self._in_flight.finished.append((attempt, outcome))
            elif (after := self._recorded(attempt, outcome, move, task)) is not None:
                self._settled(attempt, after, outcome)  # this worker's write succeeded; only the answer was lost
            else:
                self._lose(attempt)
                if task is not None and not attempt.has_begun(monotonic()):
                    unbegun[task.task_id] = attempt.task
        if unbegun:
            now = self._store.now()
            rows = [stored[task_id] for task_id in unbegun]
            apply(self._store, rows, lambda task: rules.uncount_rescue(task, unbegun[task.task_id], now), now)

    def _recorded(self, attempt: Attempt, outcome: Outcome, move: Move, row: Task | None) -> Task | None:
        """Return the task as an earlier write of this attempt's outcome left it; None if nothing shows such a write."""
        if row is None:
            return move.after if move.remove else None  # this worker deleted it
        plan = self._controls.plan_of(attempt.served)
        return rules.recorded(row, attempt.task, partial(self._after, attempt, outcome, plan))

    def settle_singly(self) -> None:
        """Settle each outcome in its own call, after an error, so that one bad row does not block the others."""
        batch = self._take_finished()
        for position, (attempt, outcome) in enumerate(batch):
            try:
                moves, settling = self._decide([(attempt, outcome)], self._store.now())
                if moves:
                    self._apply(Round([], settling, [], moves, None, 0.0), self._store.swap(moves), [])
            except StoreUnavailable:
                self._unsettled = batch[position:]
                raise
            except Exception as error:
                if self._in_flight.examine(error):
                    self._unsettled = batch[position:]
                    return
                why = failure(f"its outcome could not be recorded: {error}", "permanent")
                if isinstance(outcome, Failed) and outcome.why.message == why.message:
                    self._lose(attempt)  # the lease expires, and a rescue decides
                else:
                    self._in_flight.finished.append((attempt, Failed(why)))

    def _forget(self, attempt: Attempt) -> None:
        if attempt.reported:
            return
        attempt.reported = True
        # The same round may have claimed the task's next phase: keep that attempt.
        if self._in_flight.attempts.get(attempt.task.task_id) is attempt:
            del self._in_flight.attempts[attempt.task.task_id]

    def _lose(self, attempt: Attempt) -> None:
        self._forget(attempt)
        self.counters.lease_lost += 1
        self._lost_claims.abandon(attempt.task)  # its work may still run, so the lease must not be handed back
        self._events.send(TaskLeaseLost(attempt.task))

    @property
    def gathering(self) -> bool:
        """Whether short attempts are running, so that a short wait makes the next round's batch larger."""
        return self._running() > min(self._planner.ahead(), MOST) // 2 > 0

    def _running(self) -> int:
        """Return the number of attempts that have not ended."""
        settling = 0 if self.under_way is None else len(self.under_way.settling)
        return len(self._in_flight.attempts) - len(self._in_flight.finished) - settling

    def _rest(self, now: datetime) -> float:
        """Return the seconds until the next round; with all concurrency used, only the end of an attempt matters."""
        full = self._full and not self.gathering
        if self._in_flight.finished or (self.may_be_due and self.claiming and not full):
            return 0.0
        rest = max(0.0, self._look_at - monotonic()) if self.claiming and not full else self._interval
        if self.soon:
            rest = min(rest, max(0.0, (self.soon[0] - now) / timedelta(seconds=1)))
        if any(attempt.progress_json is not None for attempt in list(self._in_flight.attempts.values())):
            rest = min(rest, 0.25)
        return rest
