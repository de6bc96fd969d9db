"""Rate limits over all workers, and phases held because a handler met a rate limit."""

import threading
import time
from datetime import timedelta
from typing import Any

import pytest

from onerow import Pipeline, PipelineError, RateLimited, Retry, Status
from onerow.core.filters import Filter
from onerow.core.times import read
from onerow.engine.control import definitions
from onerow.engine.queue.queue import Queue
from tests.conformance.stores import Entry
from tests.engine.conftest import until, working

DONE = Filter(statuses=frozenset({Status.COMPLETED}))


def most_in(span: float, moments: list[float]) -> int:
    return max(sum(end - span < at <= end for at in moments) for end in moments)


def completed(queue: Queue) -> int:
    return sum(line.count for line in queue.count(DONE))


def test_two_workers_together_do_not_exceed_the_rate(entry: Entry, request: pytest.FixtureRequest) -> None:
    address = entry.fresh(request)
    one, two = (Queue(entry.open(address, None)) for _ in range(2))
    calls = Pipeline("calls")

    @calls.phase(rate="10/s")
    def call(job: Any) -> None: ...

    one.add_many(calls, range(35))
    with working(one, calls), working(two, calls):
        until(lambda: completed(one) == 35)
    # The store's time of the claim: a busy machine may start the handler much later.
    begun = [task.started_at.timestamp() for task in one.find(DONE, limit=35).tasks if task.started_at]
    assert len(begun) == 35
    assert most_in(0.99, begun) <= 10
    assert {task.attempt for task in one.find(DONE).tasks} == {1}
    one.close()
    two.close()


def test_a_rate_per_key_does_not_delay_other_keys(queue: Queue) -> None:
    begun: dict[str, list[float]] = {"busy": [], "calm": [], "": []}
    calls = Pipeline("calls")

    @calls.phase(rate_per_key="5/s")
    async def call(job: str) -> None:
        begun[job].append(time.monotonic())

    queue.add_many(calls, ["busy"] * 12, limit_key="busy")
    queue.add_many(calls, ["calm"] * 2, limit_key="calm")
    queue.add_many(calls, [""] * 8)
    with working(queue, calls, concurrency=4):
        until(lambda: completed(queue) == 22)
    assert most_in(0.9, begun["busy"]) <= 5
    # Tasks with other keys did not wait for the busy key.
    assert max(begun["calm"] + begun[""]) < max(begun["busy"])


def test_an_idle_phase_with_a_rate_writes_nothing(queue: Queue) -> None:
    calls = Pipeline("calls")

    @calls.phase(rate="10/s")
    def call(job: Any) -> None: ...

    with working(queue, calls):
        queue.add(calls)
        until(lambda: completed(queue) == 1)
        (before,) = queue.store.notes("rate")
        time.sleep(0.5)
        (after,) = queue.store.notes("rate")
    assert after.version == before.version


def test_the_rate_also_applies_to_pulling(queue: Queue) -> None:
    calls = Pipeline("calls")

    @calls.phase(rate="3/h")
    def call(job: Any) -> None: ...

    queue.add_many(calls, range(10))
    assert [len(queue.claim(calls, limit=n)) for n in (2, 5, 5)] == [2, 1, 0]
    assert len(queue.find(Filter(statuses=frozenset({Status.PROCESSING}))).tasks) == 3


def test_a_rate_limited_error_holds_the_whole_phase(queue: Queue) -> None:
    begun: list[int] = []
    calls = Pipeline("calls")

    @calls.phase(concurrency=1, retry=Retry(3))
    def call(job: int) -> None:
        begun.append(job)
        if len(begun) == 1:
            raise RateLimited("1h", scope="phase")

    first, *others = queue.add_many(calls, [0, 1, 2])
    with working(queue, calls):
        until(lambda: queue.get(first.task_id).retry_count == 1)
        time.sleep(0.5)
    assert begun == [0]
    assert [queue.get(task.task_id).attempt for task in others] == [0, 0]
    held = definitions.load_controls(queue.store).hold_of("calls", ["call"], queue.store.now())
    assert held is not None
    assert read(held.until) - queue.store.now() > timedelta(minutes=50)
    assert len(queue.claim(calls, limit=5)) == 0


def test_a_hold_ends_without_an_operation(queue: Queue) -> None:
    calls = Pipeline("calls")
    asked = threading.Event()

    @calls.phase
    def call(job: int) -> None:
        if not asked.is_set():
            asked.set()
            raise RateLimited("300ms", scope="phase")

    queue.add_many(calls, range(5))
    with working(queue, calls, concurrency=1):
        until(lambda: completed(queue) == 5)


def test_an_invalid_rate_is_an_error_at_definition() -> None:
    with pytest.raises(PipelineError, match="rate"):
        Pipeline("calls").phase(name="a", rate="often")(lambda job: None)
    with pytest.raises(PipelineError, match="rate_per_key"):
        Pipeline("calls").phase(name="a", rate_per_key="often")(lambda job: None)
