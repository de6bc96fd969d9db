"""Lost leases: a worker that lost a lease, or may have, writes nothing more and stops the attempt in time."""

import contextlib
import sqlite3
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from onerow import AsyncContext, Context, Item, Pipeline, Queue, Status
from onerow.core import rules
from onerow.core.outcomes import Cancelled
from onerow.core.task import Task
from onerow.engine.worker.roles.heartbeat import DeadlineWatcher
from onerow.ports import Claim, Move, SwapAnswer, Swapped
from onerow.stores.memory import MemoryStore
from tests.engine.kit import PATIENCE, reached, until, working


def test_a_step_of_a_lost_attempt_is_not_written_under_the_next_holder_s_token(queue: Queue) -> None:
    go, over = threading.Event(), threading.Event()
    raised: list[str] = []
    pipeline = Pipeline("posts")

    @pipeline.phase(lease="1h")  # so that no heartbeat notices the lost lease
    def publish(job: object, ctx: Context) -> None:
        assert go.wait(PATIENCE)
        try:
            ctx.step("late", lambda: "written by a lost attempt")
        except Cancelled as stop:
            raised.append(str(stop))
            raise
        finally:
            over.set()

    task = queue.add(pipeline)
    with working(queue, pipeline, phases=["publish"]) as worker:
        lost = reached(queue, task, Status.PROCESSING)
        queue.pause("posts")
        until(lambda: worker._background.controls._controls.pauses, "the pause")
        until(lambda: taken_away(queue, task.task_id), "the rescue")
        queue.resume("posts")
        (next_holder,) = until(lambda: queue.claim(pipeline, worker="next", lease_for="1h"), "the next claim")
        assert next_holder.task.token > lost.token
        go.set()
        assert over.wait(PATIENCE)
        until(lambda: not worker._in_flight.attempts, "the end of the lost attempt")
        row = queue.get(task.task_id)
    assert raised
    assert (row.status, row.leased_by, row.token, row.steps) == (Status.PROCESSING, "next", next_holder.token, {})
    assert row.version == next_holder.task.version


def taken_away(queue: Queue, task_id: str) -> bool:
    before = queue.get(task_id)
    return isinstance(queue.store.swap([Move(before, rules.rescue(before, queue.store.now()))])[0], Swapped)


def test_work_is_stopped_while_the_store_is_unavailable_and_its_lease_runs_out(tmp_path: Path) -> None:
    stopped = threading.Event()
    pipeline = Pipeline("posts")

    @pipeline.phase(lease="2s")
    def publish(job: object, ctx: Context) -> None:
        try:
            while True:
                time.sleep(0.01)
        except Cancelled:
            stopped.set()
            raise

    queue = Queue(f"sqlite:///{tmp_path / 'onerow.db'}")
    task = queue.add(pipeline)
    with working(queue, pipeline) as worker:
        reached(queue, task, Status.PROCESSING)
        until(
            lambda: [each for each in worker._in_flight.attempts.values() if each.started_at is not None], "the start"
        )
        (attempt,) = worker._in_flight.attempts.values()
        with contextlib.closing(sqlite3.connect(tmp_path / "onerow.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # no heartbeat can be written from here on
            assert stopped.wait(PATIENCE)
            assert attempt.stop == "lost"
            other.execute("COMMIT")
    queue.close()


@pytest.mark.parametrize("age, is_stopped", [(0.0, False), (8.0, False), (8.6, True), (10.0, True), (60.0, True)])
def test_work_is_stopped_a_margin_before_its_last_lease_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age: float, is_stopped: bool
) -> None:
    go = threading.Event()
    pipeline = Pipeline("posts")

    @pipeline.phase(lease="10s")
    def publish(job: object) -> None:
        go.wait(PATIENCE)

    queue = Queue(f"sqlite:///{tmp_path / 'onerow.db'}")
    task = queue.add(pipeline)
    with working(queue, pipeline) as worker:
        reached(queue, task, Status.PROCESSING)
        until(
            lambda: [each for each in worker._in_flight.attempts.values() if each.started_at is not None], "the start"
        )
        (attempt,) = worker._in_flight.attempts.values()
        asked: list[str] = []
        monkeypatch.setattr(type(attempt), "ask_to_stop", lambda self, reason: asked.append(reason))
        monkeypatch.setattr("onerow.engine.worker.roles.heartbeat.monotonic", lambda: attempt.beat_at + age)
        DeadlineWatcher(worker._in_flight, 1.0, lambda hung, because: None, pipeline.plan.phases[0].lease).tick(
            queue.store.now()
        )
        monkeypatch.undo()
        assert ("lost" in asked) == is_stopped
        go.set()
    queue.close()


class LateAnswer(MemoryStore):
    """A store whose first claim is answered after its lease has ended, as if the process had been stopped."""

    late = False

    def settle_and_claim(self, moves: Sequence[Move], claim: Claim | None) -> tuple[list[SwapAnswer], list[Task]]:
        answers, tasks = super().settle_and_claim(moves, claim)
        if tasks and not self.late:
            self.late = True
            time.sleep(1.2)
        return answers, tasks


@pytest.mark.parametrize("kind", ["def", "async def", "batch"])
def test_a_task_whose_claim_is_answered_after_its_lease_does_not_begin(kind: str) -> None:
    began: list[int] = []
    pipeline = Pipeline("posts")
    if kind == "def":

        @pipeline.phase(lease="1s")
        def publish(job: object, ctx: Context) -> None:
            began.append(ctx.token)

    elif kind == "async def":

        @pipeline.phase(name="publish", lease="1s")
        async def publish_async(job: object, ctx: AsyncContext) -> None:
            began.append(ctx.token)

    else:

        @pipeline.batch("publish", size=5, within="10ms", lease="1s")
        def publish_many(items: Sequence[Item[object]]) -> None:
            for item in items:
                began.append(item.task.token)
                item.done()

    queue = Queue(LateAnswer())
    task = queue.add(pipeline)
    with working(queue, pipeline):
        until(lambda: queue.get(task.task_id).ended, "the end of the task")
    row = queue.get(task.task_id)
    assert row.status is Status.COMPLETED
    assert 1 not in began, "the token of the claim that was answered late"
    assert row.token in began  # on a loaded machine a later lease may end too
    assert row.token > 1  # the first claim was rescued, or handed back, which leaves no entry in the history
