"""Batch phases: many tasks in one call, each settled separately."""

import asyncio
import threading
import time
from dataclasses import dataclass
from typing import Any

import pytest

from onerow import Finish, Item, Jump, Permanent, Pipeline, PipelineError, Retry, Snooze, Status
from onerow.core import rules
from onerow.core.filters import Filter
from onerow.engine.queue.queue import Queue
from onerow.engine.worker.worker import must_end
from onerow.ports import Move
from tests.engine.conftest import ended, until, working
from tests.engine.isolated_requests_app import clumsy
from tests.engine.kit import ON_SQLITE

QUICK = Retry(3, wait="10ms", jitter=0)


def completed(queue: Queue) -> int:
    return sum(line.count for line in queue.count(Filter(statuses=frozenset({Status.COMPLETED}))))


def test_a_call_gets_at_most_the_batch_size(queue: Queue) -> None:
    sizes: list[int] = []
    posts = Pipeline("posts")

    @posts.phase
    def clean(job: int) -> int:
        return job * 2

    @posts.batch("embed", size=10, within="100ms")
    def embed(items: list[Item[int]]) -> None:
        sizes.append(len(items))
        for item in items:
            item.done([item.payload, item.results["clean"]])

    tasks = queue.add_many(posts, range(25))
    with working(queue, posts, concurrency=2):
        until(lambda: completed(queue) == 25)
    assert [queue.get(task.task_id).result for task in tasks] == [[n, n * 2] for n in range(25)]
    assert max(sizes) <= 10
    assert len(sizes) < 25


@ON_SQLITE
def test_batches_of_one_claim_run_at_the_same_time(queue: Queue) -> None:
    together = threading.Barrier(3, timeout=900)
    posts = Pipeline("posts")

    @posts.batch("embed", size=2, within="1h", retry=Retry(0))
    def embed(items: list[Item[int]]) -> None:
        together.wait()  # raises unless three batches run at once
        for item in items:
            item.done()

    tasks = queue.add_many(posts, range(6))
    with working(queue, posts, concurrency=3):
        assert {ended(queue, task.task_id).status for task in tasks} == {Status.COMPLETED}


def test_a_full_batch_starts_at_once_and_a_partial_one_waits(queue: Queue) -> None:
    sizes: list[int] = []
    posts = Pipeline("posts")

    @posts.batch("embed", size=5, within="1h")
    async def embed(items: list[Item[Any]]) -> None:
        await asyncio.sleep(0)
        sizes.append(len(items))
        for item in items:
            item.done()

    queue.add_many(posts, range(7))
    with working(queue, posts, concurrency=1, grace=1):
        until(lambda: completed(queue) == 5)
    assert sizes == [5]
    # Tasks that waited for a full batch are given back without using up an attempt.
    waiting = queue.find(Filter(statuses=frozenset({Status.WAITING}))).tasks
    assert [(task.attempt, task.history) for task in waiting] == [(0, []), (0, [])]


def test_each_item_is_settled_separately(queue: Queue) -> None:
    posts = Pipeline("posts")

    @posts.batch("embed", size=10, within="200ms", retry=QUICK)
    def embed(items: list[Item[str]]) -> None:
        for item in items:
            match item.payload:
                case "good":
                    item.done("vector")
                case "bad":
                    item.fail(Permanent("no text"))
                case "shy" if item.task.retry_count == 0:
                    item.fail("not yet", error_class="network")
                case "later" if item.task.attempt == 1:
                    item.snooze("10ms")
                case "skip":
                    item.done(Jump("last", "skipped"))
                case "stop":
                    item.done(Finish("stopped"))
                case _:
                    item.done("at last")

    @posts.phase
    def check(job: Any) -> str:
        return "checked"

    @posts.phase
    def last(job: Any, embed: Any, check: Any) -> Any:
        return [embed, check]

    names = ["good", "bad", "shy", "later", "skip", "stop"]
    tasks = queue.add_many(posts, names)
    with working(queue, posts):
        found = {task.payload: ended(queue, task.task_id) for task in tasks}
    assert {name: task.result for name, task in found.items()} == {
        "good": ["vector", "checked"],
        "bad": None,
        "shy": ["at last", "checked"],
        "later": ["at last", "checked"],
        "skip": ["skipped", None],
        "stop": "stopped",
    }
    assert (found["bad"].status, found["bad"].error_class) == (Status.FAILED, "permanent")


def test_unsettled_items_are_retried_together(queue: Queue) -> None:
    calls: list[list[int]] = []
    posts = Pipeline("posts")

    @posts.batch("embed", size=4, within="300ms", retry=Retry(3, wait="50ms", jitter=1))
    def embed(items: list[Item[int]]) -> None:
        calls.append(sorted(item.payload for item in items))
        for item in items[: 1 if len(calls) < 3 else None]:
            item.done()
        if len(calls) == 1:
            raise ConnectionError("in the midst of it")

    queue.add_many(posts, range(4))
    with working(queue, posts):
        until(lambda: completed(queue) == 4)
    assert [len(call) for call in calls] == [4, 3, 2]
    errors = {entry.error for task in queue.find().tasks for entry in task.history if entry.error}
    assert errors == {"ConnectionError: in the midst of it", "embed did not settle this item"}


def test_a_handler_that_snoozes_snoozes_all_unsettled_items(queue: Queue) -> None:
    posts = Pipeline("posts")

    @posts.batch("embed", size=3, within="100ms")
    def embed(items: list[Item[int]]) -> None:
        if items[0].task.attempt == 1:
            raise Snooze("10ms")
        for item in items:
            item.done()

    queue.add_many(posts, range(3))
    with working(queue, posts):
        until(lambda: completed(queue) == 3)
    assert {task.retry_count for task in queue.find().tasks} == {0}


def test_a_cancelled_item_does_not_affect_the_others(queue: Queue) -> None:
    posts = Pipeline("posts")
    here, go = threading.Event(), threading.Event()
    seen: list[bool] = []

    @posts.batch("embed", size=2, within="10s")
    def embed(items: list[Item[str]]) -> None:
        here.set()
        go.wait(900)
        seen.extend(item.cancelled for item in items if item.payload == "unwanted")
        for item in items:
            item.done("vector")

    wanted, unwanted = queue.add_many(posts, ["wanted", "unwanted"])
    with working(queue, posts):
        assert here.wait(900)
        queue.cancel(unwanted.task_id)
        until(lambda: queue.get(unwanted.task_id).status is Status.CANCELLED)
        go.set()
        assert ended(queue, wanted.task_id).result == "vector"
    assert seen == [True]
    assert queue.get(unwanted.task_id).results == {}


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_batch_that_exceeds_its_timeout_is_stopped(queue: Queue, kind: str) -> None:
    posts = Pipeline("posts")
    stopped = threading.Event()

    def slowly(items: list[Item[Any]]) -> None:
        try:
            while True:
                time.sleep(0.01)
        finally:
            stopped.set()

    async def asleep(items: list[Item[Any]]) -> None:
        try:
            await asyncio.sleep(600)
        finally:
            stopped.set()

    posts.batch("embed", size=2, within="1s", timeout="300ms")(slowly if kind == "def" else asleep)
    tasks = queue.add_many(posts, range(2))
    with working(queue, posts) as worker:
        for task in tasks:
            found = ended(queue, task.task_id)
            assert (found.status, found.error_class) == (Status.FAILED, "timeout")
        assert stopped.wait(900)
    assert not must_end(worker)


def test_an_item_with_an_invalid_payload_fails_alone(queue: Queue) -> None:
    @dataclass
    class Post:
        text: str

    posts = Pipeline("posts")

    def embed(items: Any) -> None:
        for item in items:
            item.done(item.payload.text)

    embed.__annotations__["items"] = list[Item[Post]]
    posts.batch("embed", size=2, within="200ms")(embed)
    plain = Pipeline("posts")
    plain.phase(name="embed")(lambda job: None)
    good, bad = queue.add_many(plain, [{"text": "a"}, {"words": "a"}])
    with working(queue, posts):
        assert ended(queue, good.task_id).result == "a"
        assert ended(queue, bad.task_id).error_class == "permanent"


def test_a_batch_that_kills_its_process_fails_only_the_task_that_caused_it(queue: Queue) -> None:
    """The tasks of the killed worker are rescued by the test; the suspect then runs alone in an isolated process."""
    good, bad = queue.add_many(clumsy, ["good", "bad"])

    with queue.claim(clumsy, limit=2) as leases:
        for lease in leases:
            queue.store.swap([Move(lease.task, rules.rescue(lease.task, queue.store.now()))])
    with working(queue, clumsy):
        assert ended(queue, good.task_id).result == "vector"
        found = ended(queue, bad.task_id)
    assert (found.status, found.error_class) == (Status.FAILED, "crash")


def test_mistakes_in_a_batch_phase_are_errors_at_definition() -> None:
    posts = Pipeline("posts")
    with pytest.raises(PipelineError, match="size"):
        posts.batch("embed", size=0)
    with pytest.raises(PipelineError, match="concurrency counts tasks"):
        posts.batch("embed", size=10, concurrency=5)
    with pytest.raises(PipelineError, match="a list of items and nothing else"):
        posts.batch("embed", size=10)(lambda items, ctx: None)
