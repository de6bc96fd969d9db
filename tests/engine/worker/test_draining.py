"""Stopping: drain, hand back, cancel."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from onerow import Cancelled, Context, Pipeline, Queue, Status, StoreUnavailable, TaskCancelled, Worker
from onerow.engine.events.events import WorkerStopped
from onerow.engine.views import Views
from onerow.engine.worker.worker import counters_of, must_end, retire
from onerow.ports import Claim, Move
from onerow.stores.memory import MemoryStore
from tests.engine.kit import ON_SQLITE, PATIENCE, ended, everything, history_of, texts, until, work, working
from tests.engine.worker import isolated_app


def endless(kind: str, stopped: list[str]) -> Pipeline:
    """Return a pipeline whose handler runs until it is stopped."""
    pipeline = Pipeline("endless")
    if kind == "async":

        @pipeline.phase(name="act", lease="5s")
        async def arun(job: Any) -> None:
            print("asleep")
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                stopped.append("CancelledError")
                raise
    elif kind == "thread":

        @pipeline.phase(name="act", lease="5s")
        def run(job: Any) -> None:
            print("asleep")
            try:
                for _ in range(60_000):
                    threading.Event().wait(0.01)
            except Cancelled:
                stopped.append("Cancelled")
                raise
    elif kind == "check":

        @pipeline.phase(name="act", lease="5s")
        def check(job: Any, ctx: Context) -> None:
            print("asleep")
            for _ in ctx.track(range(60_000)):
                threading.Event().wait(0.01)
    else:
        pipeline.phase(name="act", isolate="process", lease="5s")(isolated_app.act)
    return pipeline


KINDS = ["async", "thread", "check", "isolated"]


@ON_SQLITE
@pytest.mark.parametrize("kind", KINDS)
def test_a_cancel_stops_running_work(queue: Queue, kind: str) -> None:
    stopped: list[str] = []
    pipeline = endless(kind, stopped)
    heard: list[str] = []
    queue.on(TaskCancelled, lambda event: heard.append(event.task.task_id))
    task = queue.add(pipeline, {"do": "check"})
    with working(queue, pipeline):
        until(lambda: "asleep" in texts(queue, task))
        queue.cancel(task.task_id, by="kim")
        done = ended(queue, task)
    assert done.status is Status.CANCELLED
    assert history_of(done) == [("cancel", "act"), ("cancelled", "act")]
    assert heard == [task.task_id]
    assert stopped == {"async": ["CancelledError"], "thread": ["Cancelled"]}.get(kind, [])


@ON_SQLITE
@pytest.mark.parametrize("kind", KINDS)
def test_a_stop_hands_back_tasks_that_do_not_end_in_time(queue: Queue, kind: str) -> None:
    pipeline = endless(kind, [])
    why: list[str] = []
    queue.on(WorkerStopped, lambda event: why.append(event.reason))
    task = queue.add(pipeline, {"do": "check"})
    with working(queue, pipeline, grace="1s"):
        until(lambda: "asleep" in texts(queue, task))
    assert why == ["on request, 1 running task handed back"]
    now = queue.get(task.task_id)
    assert (now.status, now.attempt, now.retry_count, now.crash_count) == (Status.WAITING, 0, 0, 0)
    assert history_of(now) == [("handed back", "act")]
    assert (now.leased_by, now.error) == (None, None)


@ON_SQLITE
def test_a_worker_says_whether_it_was_idle_or_was_asked_to_stop(queue: Queue) -> None:
    why: list[str] = []
    queue.on(WorkerStopped, lambda event: why.append(event.reason))
    pipeline = endless("async", [])
    work(queue, pipeline)
    with working(queue, pipeline):
        pass
    assert why == ["idle", "on request"]


def test_a_stop_lets_running_work_end(queue: Queue) -> None:
    begun, go = threading.Event(), threading.Event()
    pipeline = Pipeline("short")

    @pipeline.phase
    def run(job: object) -> str:
        begun.set()
        assert go.wait(900)
        return "done"

    task = queue.add(pipeline)
    with working(queue, pipeline, grace="15m") as worker:
        assert begun.wait(900)  # a claimed task that has not begun is handed back
        worker.stop()
        until(lambda: not worker._producer.claiming)
        other = queue.add(pipeline)
        go.set()
        assert ended(queue, task).results == {"run": "done"}
    assert queue.get(other.task_id).attempt == 0


def test_a_worker_that_retires_claims_no_more_and_lets_running_work_end_beyond_its_grace(queue: Queue) -> None:
    pipeline = Pipeline("slow")
    begun, go = threading.Event(), threading.Event()

    @pipeline.phase
    def run(job: object) -> str:
        begun.set()
        assert go.wait(PATIENCE)
        return "done"

    task = queue.add(pipeline)
    worker = Worker(queue, [pipeline], grace="10ms", concurrency=1)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    assert begun.wait(PATIENCE)
    retire(worker)
    left = queue.add(pipeline)
    until(lambda: [line.draining for line in Views(queue).workers()] == [True], "the registry entry")
    thread.join(0.3)
    assert thread.is_alive()
    go.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    done = queue.get(task.task_id)
    assert (done.status, done.attempt, counters_of(worker).settled, worker.exit_code) == (Status.COMPLETED, 1, 1, 0)
    assert (queue.get(left.task_id).status, queue.get(left.task_id).attempt) == (Status.WAITING, 0)


def test_a_stop_ends_the_patience_of_a_worker_that_retires(queue: Queue) -> None:
    pipeline = Pipeline("slow")
    begun = threading.Event()

    @pipeline.phase
    async def run(job: object) -> None:
        begun.set()
        await asyncio.sleep(600)

    task = queue.add(pipeline)
    worker = Worker(queue, [pipeline], grace="10ms")
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    assert begun.wait(PATIENCE)
    retire(worker)
    worker.stop()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    back = queue.get(task.task_id)
    assert (back.status, back.retry_count) == (Status.WAITING, 0)


def test_tasks_claimed_and_not_started_are_handed_back_at_once(queue: Queue) -> None:
    pipeline = Pipeline("short")
    go = threading.Event()
    begun: list[int] = []

    @pipeline.phase
    def run(job: int) -> None:
        begun.append(job)
        assert go.wait(900)

    tasks = queue.add_many(pipeline, range(10))
    with working(queue, pipeline, concurrency=2, grace="15m") as worker:
        until(lambda: len(begun) == 2)
        worker.stop()
        until(lambda: not worker._producer.claiming)
        go.set()
        until(lambda: any(queue.get(task.task_id).status is Status.COMPLETED for task in tasks))
    left = [queue.get(task.task_id) for task in tasks]
    assert {task.status for task in left} == {Status.COMPLETED, Status.WAITING}
    assert {task.attempt for task in left if task.status is Status.WAITING} == {0}


@pytest.mark.parametrize("stop_at", [1, 700, 1700])
def test_a_stop_during_thousands_of_tasks_hands_back_those_being_claimed(queue: Queue, stop_at: int) -> None:
    pipeline = Pipeline("short")
    runs: list[int] = []
    workers: list[Worker] = []

    @pipeline.phase
    async def run(job: int) -> None:
        runs.append(job)
        if len(runs) == stop_at:
            workers[0].stop()

    queue.add_many(pipeline, range(5000))
    workers.append(Worker(queue, [pipeline], grace="30s"))
    assert workers[0].run() == 0
    found = everything(queue)
    done = [task for task in found if task.status is Status.COMPLETED]
    assert sorted(runs) == sorted(task.payload for task in done)
    assert {(task.status, task.attempt, task.leased_by) for task in found if task not in done} == {
        (Status.WAITING, 0, None)
    }


def test_a_cancelled_task_whose_handler_returns_is_cancelled_with_its_result(queue: Queue) -> None:
    pipeline = Pipeline("stubborn")

    @pipeline.phase
    async def run(job: object) -> str:
        print("asleep")
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            return "done anyway"
        return "never"

    pipeline.phase(name="next")(lambda job: None)
    task = queue.add(pipeline)
    with working(queue, pipeline):
        until(lambda: "asleep" in texts(queue, task))
        queue.cancel(task.task_id)
        done = ended(queue, task)
    assert (done.status, done.phase, done.results) == (Status.CANCELLED, "run", {"run": "done anyway"})


@ON_SQLITE
def test_a_cancel_while_the_arguments_are_decoded_is_not_lost(queue: Queue) -> None:
    making = threading.Event()
    ran: list[object] = []

    pipeline = Pipeline("slow")

    class Payload:
        """A payload that takes time to decode."""

        @classmethod
        def model_validate_json(cls, text: str) -> "Payload":
            making.set()
            threading.Event().wait(2.5)
            return cls()

        @classmethod
        def model_json_schema(cls) -> dict[str, Any]:
            return {}

    @pipeline.phase(lease="30s")
    def run(job: Payload) -> None:
        for _ in range(6000):
            ran.append(job)
            threading.Event().wait(0.01)

    queue.publish(pipeline)
    task = Queue(queue.store).add("slow", {})
    with working(queue, pipeline):
        assert making.wait(900)
        queue.cancel(task.task_id)
        assert ended(queue, task).status is Status.CANCELLED


class Refusing(MemoryStore):
    """A store whose writes raise `error` once it is set."""

    error: Exception | None = None
    refused = 0

    def settle_and_claim(self, moves: Sequence[Move], claim: Claim | None) -> Any:
        if self.error is not None:
            self.refused += 1
            raise self.error
        return super().settle_and_claim(moves, claim)

    def swap(self, moves: Sequence[Move]) -> Any:
        if self.error is not None:
            raise self.error
        return super().swap(moves)


@pytest.mark.parametrize("error", [StoreUnavailable("gone"), TypeError("a mistake")], ids=["away", "mistaken"])
def test_a_worker_that_cannot_write_outcomes_ends_after_its_grace_without_a_busy_loop(error: Exception) -> None:
    store = Refusing()
    queue = Queue(store)
    pipeline = endless("async", [])
    task = queue.add(pipeline, {"do": "check"})
    with working(queue, pipeline, grace="500ms") as worker:
        until(lambda: "asleep" in texts(queue, task))
        store.error = error
        worker.stop()
    assert queue.get(task.task_id).status is Status.PROCESSING
    # Within the grace and three seconds for recording, with pauses of up to a quarter of a second.
    assert 0 < store.refused < 60


def test_handlers_that_ignore_the_stop_end_only_with_their_process(queue: Queue) -> None:
    pipeline = Pipeline("deaf")
    deaf = threading.Event()

    @pipeline.phase(timeout="300ms", lease="5s")
    def run(job: object) -> None:
        while not deaf.is_set():
            try:
                deaf.wait(0.01)
            except BaseException:
                continue

    task = queue.add(pipeline)
    try:
        with working(queue, pipeline, grace="100ms") as worker:
            done = ended(queue, task)
            assert (done.status, done.error_class) == (Status.FAILED, "timeout")
        assert must_end(worker)
        assert worker.exit_code == 75
    finally:
        deaf.set()
