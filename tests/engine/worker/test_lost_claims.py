"""A claim whose answer was lost: the worker that made it hands the tasks back at once, and they pay nothing for it."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from onerow import Pipeline, Queue, Status, StoreUnavailable, Task
from onerow.ports import Claim
from tests.engine.kit import PATIENCE, ended, everything, reached, told, until, working

LONG = "1h"
"""A lease that no test outlives: what comes back before it ends was handed back."""


def jobs(go: threading.Event | None = None) -> Pipeline:
    pipeline = Pipeline("jobs")

    @pipeline.phase(lease=LONG)
    def run(job: int) -> int:
        if go is not None and job < 0:
            go.wait(PATIENCE)
        return job

    return pipeline


class LosesAnswers:
    """Makes the turns of a store fail when their claims took something: after they landed, or before they do."""

    def __init__(self, queue: Queue, monkeypatch: pytest.MonkeyPatch, *, late: float | None = None) -> None:
        self._turn: Callable[..., Any] = queue.store.settle_and_claim
        self._late = late
        self.left = 0
        self.lost: list[Task] = []
        monkeypatch.setattr(queue.store, "settle_and_claim", self)

    def __call__(self, moves: Any, claim: Claim | None) -> Any:
        if claim is None or self.left == 0:
            return self._turn(moves, claim)
        if self._late is not None:
            self.left -= 1
            threading.Timer(self._late, self._carry_out, (moves, claim)).start()
            raise StoreUnavailable("the connection broke, and the server goes on")
        answer = self._turn(moves, claim)
        if not answer[1]:
            return answer
        self.left -= 1
        self.lost += answer[1]
        raise StoreUnavailable("the answer was lost")

    def _carry_out(self, moves: Any, claim: Claim) -> None:
        self.lost += self._turn(moves, claim)[1]


def must_have_paid_nothing(task: Task) -> None:
    assert (task.status, task.attempt) == (Status.COMPLETED, 1), task
    assert (task.retry_count, task.crash_count, task.rescue_count) == (0, 0, 0)
    assert told(task) == [("completed", "run")]


def test_what_a_lost_answer_claimed_is_handed_back_at_once_and_pays_nothing(
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
        must_have_paid_nothing(task)


def test_what_the_server_claims_after_the_connection_broke_is_handed_back_too(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = jobs()
    line = LosesAnswers(queue, monkeypatch, late=0.3)
    queue.serve(pipeline)
    task = queue.add(pipeline, 1, run_at=queue.store.now())
    line.left = 10_000  # nothing but the late claims gets through
    with working(queue):
        until(lambda: line.lost, "a late claim")
        line.left = 0
        must_have_paid_nothing(ended(queue, task))


def test_what_the_worker_holds_is_left_alone_while_it_looks_for_lost_claims(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    pipeline = jobs(go)
    line = LosesAnswers(queue, monkeypatch)
    with working(queue, pipeline):
        held = reached(queue, queue.add(pipeline, -1), Status.PROCESSING)
        line.left = 1
        must_have_paid_nothing(ended(queue, queue.add(pipeline, 1)))
        assert queue.get(held.task_id).token == held.token
        go.set()
        must_have_paid_nothing(ended(queue, held))


def test_a_puller_gets_again_what_a_lost_answer_claimed(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_puller_whose_name_others_may_use_hands_back_nothing_it_does_not_hold(
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
