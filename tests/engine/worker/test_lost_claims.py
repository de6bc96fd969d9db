"""A claim whose answer was lost: the worker that made it hands the tasks back at once, at no cost to them."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from onerow import Pipeline, Queue, Status, StoreUnavailable, Task
from onerow.core.rules import hand_back
from onerow.engine.queue.lost_claims import LostClaims
from onerow.ports import Claim, Move, PhaseClaim
from tests.engine.kit import PATIENCE, ended, everything, history_of, reached, until, working

LONG = "1h"
"""A lease longer than any test: a task that runs again before its end was handed back."""


def jobs(go: threading.Event | None = None) -> Pipeline:
    pipeline = Pipeline("jobs")

    @pipeline.phase(lease=LONG)
    def run(job: int) -> int:
        if go is not None and job < 0:
            go.wait(PATIENCE)
        return job

    return pipeline


class LosesAnswers:
    """Makes calls of a store fail whose claim found tasks: after they were executed, or, if `late`, before."""

    def __init__(self, queue: Queue, monkeypatch: pytest.MonkeyPatch, *, late: float | None = None) -> None:
        self._settle_and_claim: Callable[..., Any] = queue.store.settle_and_claim
        self._late = late
        self.left = 0
        self.lost: list[Task] = []
        monkeypatch.setattr(queue.store, "settle_and_claim", self)

    def __call__(self, moves: Any, claim: Claim | None) -> Any:
        if claim is None or self.left == 0:
            return self._settle_and_claim(moves, claim)
        if self._late is not None:
            self.left -= 1
            threading.Timer(self._late, self._carry_out, (moves, claim)).start()
            raise StoreUnavailable("the connection broke, and the server goes on")
        answer = self._settle_and_claim(moves, claim)
        if not answer[1]:
            return answer
        self.left -= 1
        self.lost += answer[1]
        raise StoreUnavailable("the answer was lost")

    def _carry_out(self, moves: Any, claim: Claim) -> None:
        self.lost += self._settle_and_claim(moves, claim)[1]


def check_no_cost(task: Task) -> None:
    assert (task.status, task.attempt) == (Status.COMPLETED, 1), task
    assert (task.retry_count, task.crash_count, task.rescue_count) == (0, 0, 0)
    assert history_of(task) == [("completed", "run")]


def test_tasks_of_a_claim_with_a_lost_answer_are_handed_back_at_once_at_no_cost(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = jobs()
    line = LosesAnswers(queue, monkeypatch)
    with working(queue, pipeline):
        line.left = 2
        queue.add_many(pipeline, range(20))
        until(lambda: all(task.ended for task in everything(queue)), "the end of all")
    assert line.lost
    for task in everything(queue):
        check_no_cost(task)


def test_tasks_that_the_server_claims_after_the_connection_broke_are_handed_back_too(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = jobs()
    line = LosesAnswers(queue, monkeypatch, late=0.3)
    queue.serve(pipeline)
    task = queue.add(pipeline, 1, run_at=queue.store.now())
    line.left = 10_000  # only the late claims succeed
    with working(queue):
        until(lambda: line.lost, "a late claim")
        line.left = 0
        check_no_cost(ended(queue, task))


def test_tasks_in_flight_are_not_handed_back_in_the_search_for_lost_claims(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    pipeline = jobs(go)
    line = LosesAnswers(queue, monkeypatch)
    with working(queue, pipeline):
        held = reached(queue, queue.add(pipeline, -1), Status.PROCESSING)
        line.left = 1
        check_no_cost(ended(queue, queue.add(pipeline, 1)))
        assert queue.get(held.task_id).token == held.token
        go.set()
        check_no_cost(ended(queue, held))


def test_a_lease_that_is_left_to_a_rescue_is_not_handed_back_because_its_work_may_still_run(queue: Queue) -> None:
    pipeline = jobs()
    queue.add_many(pipeline, range(2))
    want = PhaseClaim(pipeline="jobs", phase="run", limit=2, lease_for=timedelta(hours=1))
    left, lost = queue.store.claim(Claim("w-1", [want]))
    claims = LostClaims(queue.store, "w-1", 3600.0, lambda task: False)
    claims.abandon(left)
    claims.expect()
    assert claims.look() == 1
    assert queue.get(left.task_id).status is Status.PROCESSING
    assert queue.get(lost.task_id).status is Status.WAITING
    # The next lease of the same task is another one.
    queue.store.swap([Move(left, hand_back(left, queue.store.now()))])
    again = queue.store.claim(Claim("w-1", [want], ids=[left.task_id]))
    assert [task.task_id for task in again] == [left.task_id]
    assert claims.look() == 1


def test_a_puller_gets_the_tasks_of_a_claim_with_a_lost_answer_again(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = jobs()
    task = queue.add(pipeline, 1)
    claim = queue.store.claim

    def losing(*given: Any) -> Any:
        claim(*given)
        raise StoreUnavailable("the answer was lost")

    with queue.puller(pipeline) as puller:
        with monkeypatch.context() as patch:
            patch.setattr(queue.store, "claim", losing)
            with pytest.raises(StoreUnavailable):
                puller.claim()
        assert queue.get(task.task_id).status is Status.PROCESSING
        (lease,) = puller.claim()
        assert (lease.task.task_id, lease.task.attempt, lease.task.rescue_count) == (task.task_id, 1, 0)
        lease.complete()


def test_a_puller_whose_name_others_may_use_hands_back_only_its_own_tasks(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = jobs()
    tasks = queue.add_many(pipeline, [1, 2])
    (other,) = queue.claim(pipeline, ids=[tasks[0].task_id], worker="shared", lease_for=LONG)

    def failing(*given: Any) -> Any:
        raise StoreUnavailable("away")

    with queue.puller(pipeline, worker="shared") as puller:
        with monkeypatch.context() as patch:
            patch.setattr(queue.store, "claim", failing)
            with pytest.raises(StoreUnavailable):
                puller.claim()
        assert [lease.task.task_id for lease in puller.claim(2)] == [tasks[1].task_id]
        other.complete()
