"""`queue.wait`: the ended task, woken by the store where it can; timeouts; the async partner."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from onerow import BadInput, Pipeline, Status, Task, UnknownName, WaitTimeout
from onerow.core.errors import StoreUnavailable
from onerow.engine.queue import end_watch
from onerow.engine.queue.queue import Queue
from tests.conformance.stores import Entry

PATIENCE = "900s"


@pytest.fixture
def clips() -> Pipeline:
    pipeline = Pipeline("clips")
    pipeline.phase(name="cut")(lambda job: None)
    return pipeline


@pytest.fixture(params=["same", "other"])
def ender(request: pytest.FixtureRequest, entry: Entry) -> Iterator[tuple[Queue, Queue]]:
    """The queue that waits, and the queue that ends the task: the same object, or one like that of another process."""
    if request.param == "other" and not entry.processes:
        pytest.skip("one process only")
    address = entry.fresh(request)
    first = Queue(entry.open(address, None))
    second = first if request.param == "same" else Queue(entry.open(address, None))
    yield first, second
    first.close()
    second.close()


def while_waiting(queue: Queue, act: Callable[[], Any]) -> None:
    """Run `act` in a thread once `wait` has registered its caller."""

    def run() -> None:
        while not queue.end_watch._waiting:
            time.sleep(0.001)
        act()

    threading.Thread(target=run, daemon=True).start()


def test_wait_returns_the_task_when_another_process_has_ended_it(ender: tuple[Queue, Queue], clips: Pipeline) -> None:
    queue, other = ender
    task = queue.add(clips)
    while_waiting(queue, lambda: other.claim(clips)[0].complete({"seconds": 3}))
    done = queue.wait(task, timeout=PATIENCE)
    assert (done.status, done.results) == (Status.COMPLETED, {"cut": {"seconds": 3}})
    assert queue.wait(task.task_id) == done  # it has ended already


def test_a_failed_or_cancelled_task_is_returned_too(queue: Queue, clips: Pipeline) -> None:
    one, two = queue.add_many(clips, range(2))
    while_waiting(queue, lambda: queue.fail(one.task_id, "no space"))
    failed = queue.wait(one, timeout=PATIENCE)
    assert (failed.status, failed.error) == (Status.FAILED, "no space")
    while_waiting(queue, lambda: queue.cancel(two.task_id))
    assert queue.wait(two, timeout=PATIENCE).status is Status.CANCELLED


def test_the_store_wakes_the_wait(
    ender: tuple[Queue, Queue], clips: Pipeline, entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With looking by itself switched off: the end of a task of a limited phase wakes on every store."""
    queue, other = ender
    queue.publish(clips)
    queue.set_limit("clips", "cut", concurrency=1)
    monkeypatch.setattr(end_watch, "_SHORTEST", 3600.0)
    monkeypatch.setattr(end_watch, "_LONGEST", 3600.0)
    task = queue.add(clips)
    (lease,) = other.claim(clips)
    while_waiting(queue, lease.complete)
    assert queue.wait(task, timeout=PATIENCE).status is Status.COMPLETED


def test_a_timeout_says_where_the_task_is_and_leaves_it_alone(queue: Queue, clips: Pipeline) -> None:
    task = queue.add(clips)
    with pytest.raises(WaitTimeout) as refused:
        queue.wait(task, timeout="20ms")
    assert isinstance(refused.value, TimeoutError)
    assert (refused.value.task_id, refused.value.status, refused.value.phase) == (task.task_id, "waiting", "cut")
    assert f"task {task.task_id} did not end within 20ms: it is waiting in cut" in str(refused.value)
    assert queue.get(task.task_id) == task
    assert not queue.end_watch._waiting


def test_unknown_tasks_and_tasks_of_other_users_are_refused(queue: Queue, clips: Pipeline) -> None:
    task = queue.add(clips, user_id="u1")
    with pytest.raises(UnknownName):
        queue.wait("nowhere")
    with pytest.raises(UnknownName):
        queue.for_user("u2").wait(task, timeout="10ms")
    with pytest.raises(BadInput, match="a task or its id"):
        queue.wait(7)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="duration"):
        queue.wait(task, timeout="soon")


def test_many_callers_share_one_thread(queue: Queue, clips: Pipeline) -> None:
    tasks = queue.add_many(clips, range(20))

    async def all_of_them() -> list[Task]:
        waiting = [asyncio.create_task(queue.wait_async(task, timeout=PATIENCE)) for task in tasks]
        while len(queue.end_watch._waiting) < len(tasks):
            await asyncio.sleep(0.01)
        assert sum(thread.name == "onerow-wait" for thread in threading.enumerate()) == 1
        await asyncio.to_thread(queue.select().cancel)
        return await asyncio.gather(*waiting)

    assert {task.status for task in asyncio.run(all_of_them())} == {Status.CANCELLED}


def test_the_async_wait_times_out_and_can_be_cancelled(queue: Queue, clips: Pipeline) -> None:
    task = queue.add(clips)

    async def both() -> None:
        with pytest.raises(WaitTimeout):
            await queue.wait_async(task, timeout="20ms")
        waiting = asyncio.create_task(queue.wait_async(task))
        while not queue.end_watch._waiting:
            await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(both())
    assert not queue.end_watch._waiting


class BrokenWaker:
    """A waker whose store is unavailable for some calls."""

    def __init__(self, broken: int) -> None:
        self.broken = broken

    def wait(self, timeout: float) -> bool:
        self.broken -= 1
        if self.broken >= 0:
            raise StoreUnavailable("the server is down")
        time.sleep(timeout)
        return False

    def poke(self) -> None: ...

    def close(self) -> None: ...


def test_a_waker_that_fails_does_not_end_the_wait(
    queue: Queue, clips: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    waker = BrokenWaker(3)
    monkeypatch.setattr(queue.store, "waker", lambda: waker)
    task = queue.add(clips)

    def cancel() -> None:
        while waker.broken >= 0:
            time.sleep(0.001)
        queue.cancel(task.task_id)

    while_waiting(queue, cancel)
    assert queue.wait(task, timeout=PATIENCE).status is Status.CANCELLED


def test_a_caller_that_cannot_be_told_does_not_affect_the_others(queue: Queue, clips: Pipeline) -> None:
    forgotten, wanted = queue.add_many(clips, range(2))
    asked = threading.Event()

    def tell(answer: object) -> None:
        asked.set()
        raise RuntimeError("Event loop is closed")  # as `wait_async` of a loop that was closed before its end

    queue.end_watch.add(forgotten.task_id, tell)
    queue.cancel(forgotten.task_id)
    assert asked.wait(900)
    while_waiting(queue, lambda: queue.cancel(wanted.task_id))
    assert queue.wait(wanted, timeout=PATIENCE).status is Status.CANCELLED
