"""Claims ahead: a worker holds no more leases than it can settle in time, however short its handlers are."""

import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import pairwise
from time import monotonic
from typing import Any

import pytest

from onerow import Pipeline, Queue, Status
from onerow.core import rules
from onerow.core.task import Task
from onerow.engine.worker.claim_planner import MOST, ClaimPlanner, SettledLately
from onerow.engine.worker.counters import Counters
from onerow.ports import Claim, Move, Store, SwapAnswer, Swapped
from tests.engine.kit import everything, until, working
from tests.engine.worker import suspect_app
from tests.engine.worker.test_suspects import rescued

LEASE = 6.0
CONCURRENCY = 4
DELAY = 0.15


class Slow:
    """Slows the rounds of one worker down; notes how many leases each claim may lead to, and how many are allowed."""

    def __init__(self, store: Store) -> None:
        self._settle_and_claim = store.settle_and_claim
        self._held = 0
        self._settled: deque[tuple[float, int]] = deque()
        self.claims: list[tuple[int, int]] = []  # (held at most after this claim, allowed)

    def __call__(self, moves: Sequence[Move], claim: Claim | None) -> tuple[list[SwapAnswer], list[Task]]:
        if claim is not None:
            lately = sum(count for at, count in self._settled if monotonic() - at <= LEASE / 3)
            self.claims.append((self._held - len(moves) + (claim.limit or 0), CONCURRENCY + lately))
        time.sleep(DELAY)
        answers, tasks = self._settle_and_claim(moves, claim)
        settled = sum(isinstance(answer, Swapped) for answer in answers)
        self._settled.append((monotonic(), settled))
        self._held += len(tasks) - settled
        return answers, tasks


def test_p2_a_worker_of_a_slow_store_holds_no_more_leases_than_it_settles_in_a_third_of_a_lease(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = Pipeline("quick")

    @quick.phase(lease=f"{LEASE}s")
    async def run(job: Any) -> None:
        return None

    slow = Slow(queue.store)
    monkeypatch.setattr(queue.store, "settle_and_claim", slow)
    queue.add_many(quick, range(600))
    with working(queue, quick, concurrency=CONCURRENCY):
        until(lambda: len(everything(queue, statuses=["completed"])) == 600, "the end of all tasks")
    assert [each for each in slow.claims if each[0] > each[1]] == []
    assert max(held for held, _ in slow.claims) > 4 * CONCURRENCY  # it does claim ahead
    assert all((task.attempt, task.rescue_count) == (1, 0) for task in everything(queue))


def test_what_was_settled_long_ago_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 100.0
    monkeypatch.setattr("onerow.engine.worker.claim_planner.monotonic", lambda: clock)
    counters = Counters()
    lately = SettledLately(counters, 10.0)
    assert lately.count() == 0
    for _ in range(100):
        clock += 0.5
        counters.settled += 7
        assert lately.count() <= 7 * 20
    assert lately.count() >= 7 * 18
    clock += 10.5
    assert lately.count() == 0
    counters.settled += MOST
    assert lately.count() == MOST


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_a_rescue_of_an_attempt_that_had_not_begun_counts_towards_nothing(queue: Queue, kind: str) -> None:
    go = threading.Event()
    jobs = Pipeline("jobs")

    def block(job: int) -> None:
        if job == -1:
            go.wait(900)

    if kind == "thread":
        jobs.phase(name="run", lease="3s")(block)
    else:

        @jobs.phase(name="run", lease="3s")
        async def run(job: int) -> None:
            block(job)

    queue.add_many(jobs, range(200), priority=-5)  # short tasks, after which the worker claims ahead
    queue.add(jobs, -1, task_id="blocks")
    queue.add_many(jobs, range(200, 230), priority=5)
    with working(queue, jobs, concurrency=1) as worker:
        held = until(lambda: _unbegun(worker, "blocks"), "tasks that are claimed and can't begin")
        attempts = [worker._in_flight.attempts[task_id] for task_id in held]
        queue.pause(jobs)  # so that this worker does not claim them again
        until(lambda: worker._background.controls.terms(attempts[0].served, queue.store.now()) is None, "the pause")
        rows = queue.store.fetch(held)
        moves = [Move(row, rules.rescue(row, queue.store.now(), by="another")) for row in rows]
        taken = [answer.task for answer in queue.store.swap(moves) if isinstance(answer, Swapped)]
        assert len(taken) == len(held)
        until(lambda: all(attempt.stop == "lost" for attempt in attempts), "the worker to notice it")
        go.set()
        until(lambda: not any(task.suspect for task in queue.store.fetch(held)), "the rescues to count for nothing")
        queue.resume(jobs)
        until(lambda: all(task.ended for task in everything(queue)), "the end of all tasks")
    for task in queue.store.fetch([task.task_id for task in taken]):
        assert (task.status, task.rescue_count, task.crash_count) == (Status.COMPLETED, 0, 0)
        assert [entry.what for entry in task.history] == ["rescued", "completed"]


def _unbegun(worker: Any, blocking: str) -> list[str]:
    """Return the tasks that a worker holds behind one that blocks."""
    attempts: Iterable[Any] = list(worker._in_flight.attempts.values())
    if not any(attempt.task.task_id == blocking and attempt.started_at for attempt in attempts):
        return []
    return [each.task.task_id for each in attempts if each.started_at is None and not each.ended_at]


def test_suspects_are_put_off_one_after_the_other(sqlite_queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    rescued(sqlite_queue, list(sqlite_queue.add_many(suspect_app.quick, range(40))))
    suspects = everything(sqlite_queue)
    moment = sqlite_queue.store.now()
    with working(sqlite_queue, suspect_app.waiting) as worker:  # which does not serve them
        served = worker._runners.serve(suspect_app.quick, suspect_app.quick.plan.phase("run"))
        planner = ClaimPlanner(
            sqlite_queue.store, "w1", worker._in_flight, [served], worker._background.controls,
            concurrency=16, suspects_starting=2,
        )  # fmt: skip
        monkeypatch.setattr(planner, "_now", lambda: moment)
        first = planner.postponed(suspects[:30])
        assert list(first) == [task.task_id for task in suspects[2:30]]  # two may start now
        due = [until for until in first.values() if until is not None]
        gaps = {later - earlier for earlier, later in pairwise(due)}
        assert min(gaps) >= timedelta(milliseconds=60)  # a guess of 0.2 s for a start, two at once, a little early
        assert max(gaps) <= timedelta(milliseconds=80)
        second = [until for until in planner.postponed(suspects[30:]).values() if until is not None]
        assert second[0] > due[-1]  # behind those that were put off before
        assert planner.suspects_until == second[-1]
        for _ in range(30):
            planner.postponed(suspects)
        assert planner.suspects_until == moment + timedelta(seconds=60)  # then other workers may help
