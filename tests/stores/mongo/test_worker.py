"""Workers on MongoDB continue after the server was killed or unavailable, and lose no task."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from onerow import Addition
from onerow.core.errors import StoreUnavailable
from onerow.core.filters import Filter
from onerow.core.status import COMPLETED
from onerow.core.task import Task
from onerow.engine.worker import Worker
from onerow.pipelines.pipeline import Pipeline
from onerow.ports import Store
from onerow.stores.mongo import MongoStore
from onerow.wiring import Queue
from tests.engine.kit import working
from tests.servers.mongo import MongoServer
from tests.stores.postgres.proxy import Proxy

TIMEOUT = 90.0

# At module level, because a task whose worker seemed to crash runs again in another process, which imports it by name.
counted = Pipeline("counted", title="{n}")


@counted.phase(concurrency=3, lease="3s")
def first(job: dict[str, int]) -> int:
    return job["n"] * 2


@counted.phase(lease="3s")
async def second(job: dict[str, int], first: int) -> str:
    return f"{job['n']}→{first}"


@contextlib.contextmanager
def at_work(queue: Queue) -> Iterator[None]:
    """Run a worker in a thread; stop it at the end."""
    worker = Worker(queue, [counted], concurrency=8, interval=0.2)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join(TIMEOUT)
        assert not thread.is_alive()


def until(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not ready():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.05)


def completed(store: Store) -> int:
    return sum(tally.count for tally in store.count(Filter(statuses=frozenset({COMPLETED}))))


def url_of(server: MongoServer) -> str:
    return f"{server.fresh_database()}&serverSelectionTimeoutMS=1000"


def check(store: Store, added: list[Task]) -> None:
    """Check that every task is completed, with each phase recorded once, in order, and its own results."""
    rows = {row.task_id: row for row in store.fetch([task.task_id for task in added])}
    for task in added:
        n, row = task.payload["n"], rows[task.task_id]
        assert (row.status, row.results) == (COMPLETED, {"first": n * 2, "second": f"{n}→{n * 2}"}), row
        outcomes = [(entry.phase, entry.what) for entry in row.history if entry.what in ("advanced", "completed")]
        assert outcomes == [("first", "advanced"), ("second", "completed")]


def test_tasks_go_through_their_phases(mongo_url: str) -> None:
    queue = Queue(MongoStore(mongo_url))
    with at_work(queue):
        added = [queue.add(counted, {"n": n}) for n in range(40)]
        until(lambda: completed(queue.store) == 40)
    check(queue.store, added)
    assert {len(row.history) for row in queue.store.fetch([task.task_id for task in added])} == {2}
    queue.close()


@pytest.mark.faults
@pytest.mark.parametrize("end", ["kill", pytest.param("stop", marks=pytest.mark.slow)])
def test_p1_a_worker_continues_after_its_server_was_killed(own_mongo: MongoServer, end: str) -> None:
    queue = Queue(MongoStore(url_of(own_mongo)))
    with at_work(queue):
        added = list(queue.add_many(counted, [{"n": n} for n in range(400)]))
        for round_ in range(2):
            goal = 60 + 60 * round_
            until(lambda goal=goal: completed(queue.store) >= goal)  # type: ignore[misc]
            own_mongo.kill() if end == "kill" else own_mongo.stop()
            with pytest.raises(StoreUnavailable):
                queue.add(counted, {"n": 1_000 + round_})
            own_mongo.start()
            added.append(queue.add(counted, {"n": 2_000 + round_}))
        until(lambda: all(task.status is COMPLETED for task in queue.store.fetch([task.task_id for task in added])))
    check(queue.store, added)
    queue.close()


@pytest.mark.slow
@pytest.mark.faults
def test_tasks_complete_after_the_server_was_unavailable_for_30_seconds(own_mongo: MongoServer) -> None:
    queue = Queue(MongoStore(url_of(own_mongo)))
    with at_work(queue):
        added = list(queue.add_many(counted, [{"n": n} for n in range(300)]))
        until(lambda: completed(queue.store) >= 40)
        own_mongo.kill()
        time.sleep(30)
        own_mongo.start()
        until(lambda: completed(queue.store) == 300)
    check(queue.store, added)
    queue.close()


@pytest.mark.faults
def test_a_worker_hands_back_tasks_of_a_claim_whose_answer_was_lost(mongo_url: str) -> None:
    """The connection is cut before the answer of the claim; the lease is far longer than the test."""
    pipeline = Pipeline("patient")
    pipeline.phase(name="run", lease="1h")(lambda job: job)
    proxy = Proxy(mongo_url)
    queue, owner = Queue(MongoStore(proxy.url)), Queue(MongoStore(mongo_url))
    ids = [f"lost-{number}" for number in range(16)]
    cuts: list[int] = []
    try:
        with working(queue, pipeline) as worker:

            def cut_the_claim(data: bytes) -> None:
                if b"lost-" in data and worker.name.encode() in data and not cuts:
                    held = [task for task in owner.store.fetch(ids) if task.leased_by == worker.name]
                    cuts.append(len(held))
                    proxy.cut()

            proxy.on_answer = cut_the_claim
            owner.add_many(pipeline, [Addition(number, task_id=task_id) for number, task_id in enumerate(ids)])
            until(lambda: completed(owner.store) == len(ids))
        assert cuts[0] > 0, "the claim had landed when its answer was cut off"
        for task in owner.store.fetch(ids):
            assert (task.attempt, task.retry_count, task.crash_count, task.rescue_count) == (1, 0, 0, 0)
            assert [entry.what for entry in task.history] == ["completed"]
    finally:
        queue.close()
        owner.close()
        proxy.close()
