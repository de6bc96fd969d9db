"""What one attempt does to the process that it shares with others is not charged to the others."""

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from onerow import Pipeline, Queue, Status, Task
from onerow.engine.worker.worker import must_end
from tests.engine.kit import ON_SQLITE, everything, history_of, texts, until, work, working
from tests.engine.worker import shared_process_app as app

pytestmark = pytest.mark.faults

OUT_OF_RESOURCES = ["EMFILE", "ENFILE", "ENOMEM", "thread", "hidden", "grouped"]


@pytest.fixture(autouse=True)
def nothing_begun() -> Iterator[None]:
    app.begun.clear()
    yield
    app.begun.clear()


def until_replaced(queue: Queue, pipeline: Pipeline, **options: Any) -> None:
    """Run a worker until it cannot go on; the next one would take over."""
    with working(queue, pipeline, **options) as worker:
        until(lambda: must_end(worker), "the end of the worker")
        until(lambda: not worker.running, "the attempts to be handed back")
    assert worker.exit_code == 75


def assert_ran_again_alone(task: Task, because: str) -> None:
    assert (task.status, task.retry_count, task.rescue_count) == (Status.COMPLETED, 0, 1), task.history
    assert history_of(task) == [("rescued", "run"), ("completed", "run")]
    assert because in task.history[0].note


@pytest.mark.parametrize("what", OUT_OF_RESOURCES)
def test_a_handler_that_meets_a_shortage_is_not_charged_and_the_worker_is_replaced(queue: Queue, what: str) -> None:
    task = queue.add(app.threads, f"{what} once")
    until_replaced(queue, app.threads)
    waiting = queue.get(task.task_id)
    assert (waiting.status, waiting.retry_count, waiting.suspect) == (Status.WAITING, 0, True)
    assert any("Traceback" in text for text in texts(queue, task, "error"))
    work(queue, app.threads)
    done = queue.get(task.task_id)
    assert_ran_again_alone(done, "its worker ran out of resources (")
    assert done.result != os.getpid()


@pytest.mark.parametrize(
    "pipeline, job",
    [(app.batches, "EMFILE"), (app.batches, "EMFILE settled"), (app.loop_batches, "EMFILE"), (app.loop, "EMFILE")],
    ids=lambda given: given if isinstance(given, str) else given.name,
)
def test_batches_and_the_event_loop_meet_a_shortage(
    queue: Queue, pipeline: Pipeline, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "enough", 0)
    task = queue.add(pipeline, job)
    until_replaced(queue, pipeline)
    assert history_of(queue.get(task.task_id)) == [("rescued", "run")]
    assert queue.get(task.task_id).retry_count == 0


@ON_SQLITE
def test_a_task_that_is_the_cause_itself_fails_in_its_own_process(queue: Queue) -> None:
    task = queue.add(app.threads, "EMFILE")
    until_replaced(queue, app.threads)
    work(queue, app.threads)  # both attempts run in their own process: this worker is not replaced
    done = queue.get(task.task_id)
    assert (done.status, done.error_class, done.retry_count) == (Status.FAILED, "resource", 1)
    assert history_of(done) == [("rescued", "run"), ("failed", "run"), ("failed", "run")]


@ON_SQLITE
def test_an_allocation_that_is_too_large_replaces_no_worker(queue: Queue) -> None:
    task = queue.add(app.threads, "memory")
    worker = work(queue, app.threads)
    done = queue.get(task.task_id)
    assert (done.status, done.error_class, done.retry_count) == (Status.FAILED, "resource", 1)
    assert history_of(done) == [("rescued", "run"), ("failed", "run"), ("failed", "run")]
    assert not must_end(worker)


def test_a_handler_that_calls_a_shortage_permanent_decides(queue: Queue) -> None:
    task = queue.add(app.threads, "permanent")
    until_replaced(queue, app.threads)
    done = queue.get(task.task_id)
    assert (done.status, done.error) == (Status.FAILED, "this film has too many files")


def test_attempts_for_which_no_thread_starts_are_handed_back(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith(("onerow-thread-1", "onerow-batch-run-0")):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    for pipeline in (app.threads, app.batches):
        queue.add_many(pipeline, ["good"] * 4)
        until_replaced(queue, pipeline, concurrency=4)
    monkeypatch.undo()
    work(queue, app.threads, app.batches)
    assert {(task.status, task.retry_count, task.rescue_count) for task in everything(queue)} == {
        (Status.COMPLETED, 0, 0)
    }


@ON_SQLITE
@pytest.mark.parametrize("how", ["cancel all", "cancel all and return"])
def test_a_handler_that_cancels_all_tasks_of_the_event_loop_does_not_fail_the_others(queue: Queue, how: str) -> None:
    others = queue.add_many(app.loop, ["wait"] * 3)
    culprit = queue.add(app.loop, how)
    until_replaced(queue, app.loop)
    work(queue, app.loop)
    for task in others:
        assert_ran_again_alone(queue.get(task.task_id), "cancelled")
    done = queue.get(culprit.task_id)
    if how == "cancel all":
        assert (done.status, done.error_class, done.retry_count) == (Status.FAILED, "unknown", 1)
        # Once on the shared loop, then only in its own process.
        assert history_of(done) == [("rescued", "run"), ("failed", "run"), ("failed", "run")]
    else:
        assert done.status is Status.COMPLETED


@ON_SQLITE
def test_the_batches_on_the_event_loop_are_handed_back_too(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "enough", 2)
    others = queue.add_many(app.loop_batches, ["wait"] * 4)
    queue.add(app.loop, "cancel all and return")
    with working(queue, app.loop_batches, app.loop) as worker:
        until(lambda: must_end(worker), "the end of the worker")
    work(queue, app.loop_batches, app.loop)
    for task in others:
        assert_ran_again_alone(queue.get(task.task_id), "cancelled")


@ON_SQLITE
def test_failures_after_the_resources_of_the_loop_were_cancelled_are_not_charged(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "enough", 1)
    other = queue.add(app.held, "use")
    queue.add(app.held, "cancel all and return")
    until_replaced(queue, app.held)
    work(queue, app.held)
    assert_ran_again_alone(queue.get(other.task_id), "cancelled")


@ON_SQLITE
def test_a_handler_that_shuts_the_executor_down_does_not_fail_the_others(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "enough", 1)
    other = queue.add(app.loop, "in a thread")
    queue.add(app.loop, "shut the executor down")
    until_replaced(queue, app.loop)
    work(queue, app.loop)
    assert_ran_again_alone(queue.get(other.task_id), "executor")


@ON_SQLITE
def test_a_handler_that_closes_the_event_loop_does_not_fail_the_others(
    queue: Queue, capfd: pytest.CaptureFixture[str]
) -> None:
    tasks = queue.add_many(app.loop, ["wait"] * 3 + ["close the loop"])
    until_replaced(queue, app.loop)
    work(queue, app.loop)
    for task in tasks:
        assert_ran_again_alone(queue.get(task.task_id), "closed")


@ON_SQLITE
def test_an_attempt_that_still_runs_when_the_worker_is_replaced_runs_alone_next(queue: Queue) -> None:
    queue.add(app.loop, "wait")
    with working(queue, app.loop, app.threads) as worker:
        until(lambda: "wait" in app.begun, "its start")
        queue.add(app.threads, "EMFILE once")
        until(lambda: must_end(worker) and not worker.running, "the attempts to be handed back")
    work(queue, app.loop, app.threads)
    for done in everything(queue):
        assert_ran_again_alone(done, "ran out of resources")
