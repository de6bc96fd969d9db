"""Wake-ups: operations of the same queue in the same process wake a worker before its next poll."""

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from onerow import Context, Pipeline, Queue, Retry, Status
from tests.conformance.stores import ENTRIES
from tests.engine.kit import ended, reached, until, working

NEVER = "1h"
"""Longer than the test waits: everything that happens before was caused by a wake-up."""


@pytest.fixture(params=["memory", "sqlite", "postgres", "mongo"])
def queue(request: pytest.FixtureRequest) -> Iterator[Queue]:
    entry = ENTRIES[request.param]
    opened = Queue(entry.open(entry.fresh(request), None))
    yield opened
    opened.close()


def letters() -> Pipeline:
    pipeline = Pipeline("letters")

    @pipeline.phase(retry=Retry(0))
    def write(job: Any, ctx: Context) -> Any:
        if job == "fails" and ctx.task.retry_count == 0:
            raise ValueError("no pen")
        return ctx.wait("approved") if job == "waits" else job

    return pipeline


def at_rest(queue: Queue, pipeline: Pipeline) -> None:
    """Wait until the worker is idle and would not poll again for an hour."""
    ended(queue, queue.add(pipeline, "last"))
    time.sleep(0.3)  # it claims once more after a claim that found tasks


def test_a_signal_wakes_a_worker_of_the_same_process(queue: Queue) -> None:
    pipeline = letters()
    with working(queue, pipeline, interval=NEVER):
        task = queue.add(pipeline, "waits")
        until(lambda: queue.get(task.task_id).awaiting, "the wait")
        at_rest(queue, pipeline)
        queue.signal(task.task_id, "approved", "yes")
        assert ended(queue, task).result == "yes"


def test_every_operation_that_makes_a_task_ready_wakes_a_worker_of_the_same_process(queue: Queue) -> None:
    pipeline = letters()
    with working(queue, pipeline, interval=NEVER):
        failed, done = queue.add(pipeline, "fails"), queue.add(pipeline)
        later = queue.add(pipeline, 2, run_at=queue.store.now() + timedelta(days=1))
        reached(queue, failed, Status.FAILED)
        ended(queue, done)
        at_rest(queue, pipeline)
        queue.retry(failed.task_id)
        assert ended(queue, failed).status is Status.COMPLETED
        at_rest(queue, pipeline)
        queue.reschedule(later.task_id, queue.store.now())
        assert ended(queue, later).result == 2
        at_rest(queue, pipeline)
        queue.replay(done.task_id)
        until(lambda: (task := queue.get(done.task_id)).generation == 1 and task.ended, "the end of the replay")


def test_one_worker_wakes_another_of_the_same_process(queue: Queue) -> None:
    two = Pipeline("two")

    @two.phase
    def first(job: int) -> int:
        return job

    @two.phase
    def second(job: int, first: int) -> int:
        return first + 1

    with (
        working(queue, two, interval=NEVER, phases=["first"]),
        working(queue, interval=NEVER, phases=["second"]),
    ):
        for job in range(3):
            assert ended(queue, queue.add(two, job)).result == job + 1
