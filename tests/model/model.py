"""An explicit-state model of one task: two workers, a rescuer, an operator and their faults, over the rules of core/.

Each action of the model is one atomic step on the row, and calls the rule that the engine calls. Time passes in ticks; a
lease lasts LEASE ticks, and a live worker sends a heartbeat in every tick in which the store answers. `explore` visits
every reachable state and checks the promises in each step.

States are compared without absolute numbers: of times only the distance to now counts, of versions and tokens only
whether a worker's copy is current.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from onerow.core import rules
from onerow.core.failure import failure
from onerow.core.plan import Plan
from onerow.core.rules import attempts
from onerow.core.status import COMPLETED, FAILED, PROCESSING, WAITING
from onerow.core.task import Task

LEASE = 3
TICK = timedelta(seconds=10)
START = datetime(2026, 1, 1, tzinfo=UTC)

Accepts = Callable[[Task, Task], bool]
"""Whether a store writes a row, given the stored row and the row that the writer has read."""


def compares_versions(stored: Task, read: Task) -> bool:
    return stored.version == read.version


@dataclass(frozen=True)
class Design:
    """What the model checks: the real design, or one with a weaker guard."""

    accepts: Accepts = compares_versions
    rescue: Callable[..., Task] = rules.rescue
    observes: bool = True


@dataclass(frozen=True)
class Worker:
    """A worker process, and the attempt that it believes to hold."""

    read: Task | None = None  # the row as the worker knows it
    runs: bool = False  # the handler's code runs
    outcome: str = ""  # of the handler, not settled yet
    frozen: bool = False
    stalled: bool = False  # was frozen during this attempt, so its lease may have ended


@dataclass(frozen=True)
class State:
    now: int
    row: Task
    workers: tuple[Worker, Worker] = (Worker(), Worker())
    up: bool = True  # the store answers
    seen: tuple[int, int] | None = None  # the rescuer's observation: token and lease end
    seen_for: int = 0
    # What happened so far; the promises are about these.
    faults: tuple[tuple[str, int], ...] = ()  # faults and operations that may still happen
    settled: frozenset[int] = frozenset()  # tokens whose outcome was written
    advanced: tuple[str, ...] = ()  # phases that were completed
    cancelled: bool = False  # a cancel was accepted

    @property
    def at(self) -> datetime:
        return START + self.now * TICK

    def may(self, fault: str) -> bool:
        return dict(self.faults).get(fault, 0) > 0

    def spend(self, fault: str) -> "State":
        left = dict(self.faults)
        left[fault] -= 1
        return replace(self, faults=tuple(sorted(left.items())))

    def with_worker(self, number: int, worker: Worker) -> "State":
        pair = list(self.workers)
        pair[number] = worker
        return replace(self, workers=(pair[0], pair[1]))


class Violation(Exception):
    """A promise is broken; `trace` has the actions that lead there."""

    def __init__(self, promise: str) -> None:
        super().__init__(promise)
        self.promise = promise
        self.trace: list[str] = []


def key(state: State) -> tuple[object, ...]:
    """Return what distinguishes a state from others."""
    row = state.row

    def distance(time: datetime | None) -> int | None:
        return None if time is None else max(-1, min(LEASE + 2, round((time - state.at) / TICK)))

    def worker(each: Worker) -> tuple[object, ...]:
        read = each.read
        held = None if read is None else (
            read.token - row.token, read.version == row.version, read.phase, read.cancel_requested, read.status,
            read.token in state.settled,
        )  # fmt: skip
        return held, each.runs, each.outcome, each.frozen, each.stalled

    first, second = map(worker, state.workers)  # the two are alike, so their order does not count
    seen = None
    if state.seen is not None:
        current = state.seen == (row.token, _lease_end(state))
        seen = (current, state.seen_for)
    return (
        row.status, row.phase, distance(row.leased_until), distance(row.run_at), row.cancel_requested, row.retry_count,
        row.rescue_count, frozenset({first, second}) if first != second else (first,), state.up, seen, state.faults,
        state.advanced, state.cancelled,
    )  # fmt: skip


def _lease_end(state: State) -> int:
    until = state.row.leased_until
    return -1 if until is None else round((until - START) / TICK)


class Model:
    """The actions of one design."""

    def __init__(self, plan: Plan, design: Design) -> None:
        self._plan = plan
        self._design = design

    def actions(self, state: State) -> Iterator[tuple[str, State]]:
        """Yield every action that is possible in a state, with the state that follows."""
        yield from self._tick(state)
        for number in (0, 1):
            yield from self._of_worker(state, number)
        if state.up:
            yield from self._rescue(state)
            yield from self._operate(state)
        if state.may("outage") and state.up:
            yield "the store becomes unavailable", replace(state.spend("outage"), up=False)
        if not state.up:
            yield "the store is available again", replace(state, up=True)

    # ── time ──

    def _tick(self, state: State) -> Iterator[tuple[str, State]]:
        """A tick passes; live workers send their heartbeat first, and the rescuer looks at the lease."""
        if state.row.ended or (state.row.status is WAITING and state.row.run_at <= state.at and state.up):
            return  # waiting longer changes nothing
        after = replace(state, now=state.now + 1)
        if state.up:
            for number, worker in enumerate(after.workers):
                if worker.read is not None and not worker.frozen:
                    after = self._beat(after, number)
            after = self._look(after)
        yield "a tick passes", after

    def _beat(self, state: State, number: int) -> State:
        worker, row = state.workers[number], state.row
        assert worker.read is not None
        if worker.outcome and (row.status is not PROCESSING or row.token != worker.read.token):
            return state  # the next settle finds out whether the outcome was written
        if row.status is not PROCESSING or row.token != worker.read.token:
            return state.with_worker(number, Worker())  # the lease is lost: the handler is stopped, nothing is written
        beaten = row.with_changes(state.at, leased_until=state.at + LEASE * TICK)
        known = msgspec.structs.replace(worker.read, version=beaten.version, cancel_requested=row.cancel_requested)
        return replace(state, row=beaten).with_worker(number, replace(worker, read=known))

    def _look(self, state: State) -> State:
        if state.row.status is not PROCESSING:
            return replace(state, seen=None, seen_for=0)
        lease = (state.row.token, _lease_end(state))
        if state.seen == lease:
            return replace(state, seen_for=min(state.seen_for + 1, LEASE))
        return replace(state, seen=lease, seen_for=0)

    # ── a worker ──

    def _of_worker(self, state: State, number: int) -> Iterator[tuple[str, State]]:
        worker, name = state.workers[number], f"worker {number}"
        if worker.frozen:
            yield f"{name} continues", state.with_worker(number, replace(worker, frozen=False))
            return
        if worker.read is not None and state.may("kill"):
            yield f"{name} is killed and replaced", state.spend("kill").with_worker(number, Worker())
        if worker.read is not None and state.may("freeze"):
            frozen = replace(worker, frozen=True, stalled=True)
            yield f"{name} is frozen", state.spend("freeze").with_worker(number, frozen)
        if worker.runs:
            yield f"{name}: the handler returns", state.with_worker(number, replace(worker, runs=False, outcome="done"))
            if state.may("failure"):
                raised = replace(worker, runs=False, outcome="failed")
                yield f"{name}: the handler raises", state.spend("failure").with_worker(number, raised)
        if not state.up:
            return
        if worker.read is None:
            yield from self._claim(state, number, name)
        elif worker.outcome:
            yield from self._settle(state, number, name)

    def _claim(self, state: State, number: int, name: str) -> Iterator[tuple[str, State]]:
        row = state.row
        if row.status is not WAITING or row.run_at > state.at:
            return
        if state.cancelled:
            raise Violation("a task whose cancel was accepted does not run again")
        leased = rules.claimed(row, name, state.at + LEASE * TICK, state.at, None, None)
        after = replace(state, row=leased)
        other = state.workers[1 - number]
        if other.runs and not other.stalled:
            raise Violation("no second attempt starts while a live worker runs the first")
        yield f"{name} claims", after.with_worker(number, Worker(read=leased, runs=True))
        if state.may("lost answer"):
            yield f"{name} claims, and the answer is lost", after.spend("lost answer")

    def _settle(self, state: State, number: int, name: str) -> Iterator[tuple[str, State]]:
        """Write the outcome as the producer does: after a lost race, read the row and decide again."""
        worker, stored = state.workers[number], state.row
        read = worker.read
        assert read is not None
        if not self._design.accepts(stored, read):
            if stored.token == read.token and stored.status is PROCESSING:
                yield f"{name} reads the row again", state.with_worker(number, replace(worker, read=stored))
            elif rules.recorded(stored, read, lambda at: self._decided(read, worker.outcome, at, name)):
                if read.token not in state.settled:
                    raise Violation("an outcome that a worker believes written is written")
                yield f"{name} learns that its outcome was written", state.with_worker(number, Worker())
            else:
                if read.token in state.settled:
                    raise Violation("an outcome that a worker believes lost is not written")
                yield f"{name} learns that its lease was lost", state.with_worker(number, Worker())
            return
        after = self._written(state, read, worker.outcome, name)
        yield f"{name} settles", after.with_worker(number, Worker())
        if state.may("lost answer"):
            yield f"{name} settles, and the answer is lost", after.spend("lost answer")

    def _written(self, state: State, read: Task, outcome: str, name: str) -> State:
        stored = state.row
        if stored.status is not PROCESSING or stored.token != read.token:
            raise Violation("a worker that lost its lease writes nothing")
        decided = self._decided(read, outcome, state.at, name)
        advanced = state.advanced
        if outcome == "done":
            if read.phase in advanced:
                raise Violation("each phase is completed once")
            advanced = (*advanced, read.phase)
        return replace(state, row=decided, settled=state.settled | {read.token}, advanced=advanced)

    def _decided(self, read: Task, outcome: str, at: datetime, name: str) -> Task:
        result: Any = attempts.Done('"r"') if outcome == "done" else attempts.Failed(failure("refused", "network"))
        decided = rules.decide(read, self._plan, result, at, name)
        assert decided is not None
        return decided

    # ── the rescuer and the operator ──

    def _rescue(self, state: State) -> Iterator[tuple[str, State]]:
        row = state.row
        if row.status is not PROCESSING or row.leased_until is None or row.leased_until > state.at:
            return
        if self._design.observes and (state.seen != (row.token, _lease_end(state)) or state.seen_for < LEASE):
            return
        rescued = self._design.rescue(row, state.at, by="rescuer", plan=self._plan)
        if rescued.retry_count != row.retry_count:
            raise Violation("the death of a worker costs no retry")
        yield "the rescuer takes the task", replace(state, row=rescued)

    def _operate(self, state: State) -> Iterator[tuple[str, State]]:
        row = state.row
        if state.may("cancel") and row.status in (WAITING, PROCESSING, FAILED):
            after = replace(state.spend("cancel"), row=rules.cancel(row, state.at, by="operator"), cancelled=True)
            yield "the operator cancels", after
        if state.may("retry") and row.status is FAILED:
            after = replace(state.spend("retry"), row=rules.retry(row, self._plan, state.at, by="operator"))
            yield "the operator retries", after


def check_step(before: State, after: State) -> None:
    """Check the promises about one step."""
    old, new = before.row, after.row
    if new.token < old.token or new.version < old.version:
        raise Violation("token and version never decrease")
    if new is not old and new.version == old.version:
        raise Violation("every write increases the version")
    if old.ended and new is not old and not before.may("cancel") and not before.may("retry"):
        raise Violation("an ended task stays as it is")
    if after.cancelled and new.status is COMPLETED and old.status is not COMPLETED:
        raise Violation("an accepted cancel is final")
    if new.retry_count - new.retry_base > new.max_retries:
        raise Violation("a task is not tried more often than its budget allows")


class Explored(msgspec.Struct):
    """The result of a whole search."""

    states: int
    steps: int
    ends: dict[str, int]


def explore(plan: Plan, first: Task, faults: dict[str, int], design: Design | None = None) -> Explored:
    """Visit every reachable state; raise Violation with the shortest trace that breaks a promise.

    At the end, every state must be able to reach an ended task by some continuation: nothing gets stuck.
    """
    model = Model(plan, design or Design())
    start = State(0, first, faults=tuple(sorted(faults.items())))
    number_of = {key(start): 0}
    came_from: list[tuple[int, str]] = [(-1, "")]
    before_of: list[list[int]] = [[]]
    frontier = [(0, start)]
    ends: dict[int, str] = {}
    steps = 0
    while frontier:
        following: list[tuple[int, State]] = []
        for number, state in frontier:
            if state.row.ended:
                ends[number] = str(state.row.status)
            action = ""
            try:
                for action, after in model.actions(state):
                    steps += 1
                    check_step(state, after)
                    known = number_of.setdefault(key(after), len(came_from))
                    if known == len(came_from):
                        came_from.append((number, action))
                        before_of.append([])
                        following.append((known, after))
                    before_of[known].append(number)
            except Violation as violation:
                violation.trace = [*_trace(came_from, number), action]
                raise
        frontier = following
    _check_nothing_is_stuck(came_from, before_of, ends)
    counts: dict[str, int] = {}
    for status in ends.values():
        counts[status] = counts.get(status, 0) + 1
    return Explored(len(came_from), steps, counts)


def _trace(came_from: list[tuple[int, str]], number: int) -> list[str]:
    actions: list[str] = []
    while number > 0:
        number, action = came_from[number]
        actions.append(action)
    return actions[::-1]


def _check_nothing_is_stuck(came_from: list[tuple[int, str]], before_of: list[list[int]], ends: dict[int, str]) -> None:
    reaches = set(ends)
    todo = list(ends)
    while todo:
        for before in before_of[todo.pop()]:
            if before not in reaches:
                reaches.add(before)
                todo.append(before)
    if len(reaches) < len(came_from):
        stuck = next(number for number in range(len(came_from)) if number not in reaches)
        violation = Violation("every task can come to an end")
        violation.trace = _trace(came_from, stuck)
        raise violation
