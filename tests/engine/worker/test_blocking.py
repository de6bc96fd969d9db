"""Handlers that block: a task fails by its own timeout, never because another one blocks its event loop or worker."""

import asyncio
import contextlib
import re
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

import pytest

from onerow import Cancelled, Item, Pipeline, Queue, Status
from onerow.core.rules.attempts import Done, Outcome, Unstarted
from onerow.engine.events.events import LoopBlocked, WorkerHung
from onerow.engine.runners.attempt import Attempt
from onerow.engine.runners.event_loop import LoopWatch, occupant
from onerow.engine.runners.threads import ThreadRunner
from tests.engine.kit import ON_SQLITE, ended, history_of, until, work, working


def blocks_of(queue: Queue) -> list[LoopBlocked]:
    """Return a list to which each report of a blocked event loop is added."""
    reported: list[LoopBlocked] = []
    queue.on(LoopBlocked, reported.append)
    return reported


def _sleep(seconds: float) -> None:
    time.sleep(seconds)


def _compute(seconds: float) -> None:
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        pass


async def _in_subtask(block: Callable[[float], None], seconds: float) -> None:
    async def blocks() -> None:
        block(seconds)

    await asyncio.gather(blocks(), blocks())


async def _in_callback(block: Callable[[float], None], seconds: float) -> None:
    asyncio.get_running_loop().call_soon(block, 2 * seconds)
    await asyncio.sleep(0.01)


async def _directly(block: Callable[[float], None], seconds: float) -> None:
    block(2 * seconds)


@ON_SQLITE
@pytest.mark.parametrize(
    "where, block, loop",
    [
        (_directly, _sleep, "asyncio"),
        (_directly, _compute, "asyncio"),
        (_in_subtask, _sleep, "asyncio"),
        (_in_callback, _sleep, "asyncio"),
        (_directly, _sleep, "uvloop"),
        (_directly, _compute, "uvloop"),
    ],
)
def test_only_the_task_that_blocks_the_event_loop_times_out(
    queue: Queue,
    block: Callable[[float], None],
    where: Callable[..., object],
    loop: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if loop != "asyncio":
        monkeypatch.setattr(asyncio, "new_event_loop", pytest.importorskip(loop).new_event_loop)
    pipeline = Pipeline("loop")
    began: list[int] = []

    @pipeline.phase(timeout="1s", lease="30s")
    async def run(job: int) -> str:
        began.append(job)
        if job == 7:
            while len(began) < 8:
                await asyncio.sleep(0.01)
            await where(block, 1.5)  # type: ignore[misc]
        else:
            while 7 not in began:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)
            await asyncio.sleep(0.05)
        return "done"

    reported = blocks_of(queue)
    tasks = queue.add_many(pipeline, range(8))
    with working(queue, pipeline):
        *neighbours, blocker = [ended(queue, task) for task in tasks]
        until(lambda: reported, "the report of the block")
    assert (blocker.status, blocker.error_class) == (Status.FAILED, "timeout")
    assert {event.task.task_id for event in reported} == {blocker.task_id}
    assert max(event.seconds for event in reported) > 1
    if where is _directly:  # otherwise its cancellation reaches it after the block
        assert blocker.error == "run ran longer than 1s; it blocked the event loop: use await, or a def handler"
    for task in neighbours:
        assert (task.status, history_of(task)) == (Status.COMPLETED, [("completed", "run")])


@ON_SQLITE
def test_a_batch_that_blocks_the_event_loop_times_out_and_other_phases_do_not(queue: Queue) -> None:
    pipeline = Pipeline("loop")
    blocked = threading.Event()

    @pipeline.batch("embed", size=2, within="50ms", timeout="1s")
    async def embed(items: Sequence[Item[int]]) -> None:
        blocked.set()
        time.sleep(3)
        for item in items:
            item.done()

    other = Pipeline("other")

    @other.phase(timeout="1s")
    async def run(job: object) -> None:
        while not blocked.is_set():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)

    neighbour = queue.add(other)
    with working(queue, pipeline, other):
        batch = queue.add_many(pipeline, range(2))
        assert [ended(queue, task).error_class for task in batch] == ["timeout", "timeout"]
        assert ended(queue, neighbour).status is Status.COMPLETED


@ON_SQLITE
def test_tasks_on_a_loop_that_is_blocked_for_ever_are_handed_back_at_no_cost(queue: Queue) -> None:
    pipeline = Pipeline("loop")
    release = threading.Event()
    began: list[int] = []

    @pipeline.phase(timeout="500ms", lease="30s")
    async def run(job: int) -> None:
        began.append(job)
        if job == 3:
            while len(began) < 4:
                await asyncio.sleep(0.01)
            release.wait()
        else:
            await asyncio.sleep(0.4)

    tasks = queue.add_many(pipeline, range(4))
    try:
        with working(queue, pipeline, grace="100ms") as worker:
            assert ended(queue, tasks[3]).error_class == "timeout"
            until(lambda: worker.exit_code == 75)
        for task in tasks[:3]:
            found = queue.get(task.task_id)
            assert (found.status, found.attempt, found.retry_count) == (Status.WAITING, 0, 0)
            assert (found.crash_count, history_of(found)) == (0, [("handed back", "run")])
    finally:
        release.set()


@ON_SQLITE
def test_a_block_within_the_timeout_is_reported_even_by_the_last_handler(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = Pipeline("loop")

    @pipeline.phase
    async def run(job: object) -> str:
        time.sleep(3.5)  # the loop is looked at each second
        return "done"

    reported = blocks_of(queue)
    task = queue.add(pipeline)
    work(queue, pipeline)
    assert [(event.task.task_id, 1 <= event.seconds < 60) for event in reported] == [(task.task_id, True)]
    assert queue.get(task.task_id).result == "done"
    (line,) = [record.getMessage() for record in caplog.records if "blocked" in record.getMessage()]
    assert "in run, and no other async handler could run: use await, or a def handler" in line


@ON_SQLITE
def test_a_handler_that_awaits_is_not_reported(queue: Queue) -> None:
    pipeline = Pipeline("loop")

    @pipeline.phase
    async def run(job: object) -> None:
        await asyncio.sleep(1.5)

    reported = blocks_of(queue)
    queue.add(pipeline)
    work(queue, pipeline)
    assert reported == []


@ON_SQLITE
def test_an_attempt_that_ends_long_after_its_timeout_says_so(queue: Queue) -> None:
    pipeline = Pipeline("threads")

    @pipeline.phase(timeout="500ms", lease="30s")
    def run(job: object) -> None:
        time.sleep(3)  # no exception reaches a thread in there

    with working(queue, pipeline, grace="30s"):
        error = ended(queue, queue.add(pipeline)).error
    assert error is not None
    assert re.fullmatch(r"run ran longer than 500ms; it did not react to its stop for \d+ s", error)


@ON_SQLITE
@pytest.mark.parametrize("kind", ["thread", "loop", "goes on"])
def test_a_worker_that_ends_because_of_a_handler_says_why(queue: Queue, kind: str) -> None:
    pipeline = Pipeline("hung")
    release = threading.Event()
    phase = pipeline.phase(timeout="500ms", lease="30s")
    if kind == "thread":
        because = 'its thread can\'t be stopped; isolate="process" gives it a process, which can be'

        @phase
        def run(job: object) -> None:
            release.wait()

    else:
        because = "it goes on after its cancellation"
        if kind == "loop":
            because = "it blocked the event loop: use await, or a def handler"

        @phase
        async def run_async(job: object) -> None:
            while not release.is_set():
                with contextlib.suppress(asyncio.CancelledError, Cancelled):
                    if kind == "loop":
                        release.wait()
                    await asyncio.sleep(0.05)

    hung: list[WorkerHung] = []
    queue.on(WorkerHung, hung.append)
    try:
        with working(queue, pipeline, grace="100ms") as worker:
            task = ended(queue, queue.add(pipeline))
            until(lambda: worker.exit_code == 75)
            until(lambda: hung)
    finally:
        release.set()
    assert (task.error_class, task.error) == ("timeout", f"{task.phase} ran longer than 500ms; {because}")
    assert [event.because for event in hung] == [because]


def test_a_task_queued_behind_hung_threads_is_handed_back_at_no_cost(queue: Queue) -> None:
    pipeline = Pipeline("threads")
    release = threading.Event()

    @pipeline.phase(timeout="500ms", lease="30s")
    def run(job: int) -> None:
        if job < 2:
            release.wait()

    quick = queue.add_many(pipeline, [9] * 200)  # short tasks, after which the worker claims ahead of its threads
    try:
        with working(queue, pipeline, grace="100ms", concurrency=2) as worker:
            for task in quick:
                ended(queue, task)
            tasks = queue.add_many(pipeline, [0, 1, *[2] * 30])
            for task in tasks[:2]:
                assert ended(queue, task).error_class == "timeout"
            until(lambda: worker.exit_code == 75)
        for task in tasks[2:]:
            found = queue.get(task.task_id)
            assert found.status in (Status.WAITING, Status.COMPLETED)
            assert (found.crash_count, found.retry_count, found.error) == (0, 0, None)
            assert found.leased_by is None
    finally:
        release.set()


class Waiting:
    """An attempt as a runner sees it; it is its own `in_flight`."""

    def __init__(self) -> None:
        self.stop: str | None = None
        self.handle = self.started_at = None
        self.in_flight = self
        self.outcomes: list[object] = []

    def may_begin(self) -> bool:
        return self.stop is None

    def finish_unstarted(self) -> None:
        Attempt.finish_unstarted(self)  # type: ignore[arg-type]

    def finish(self, attempt: "Waiting", outcome: object) -> None:
        self.outcomes.append(outcome)


def test_a_stop_withdraws_an_attempt_that_no_thread_has_begun() -> None:
    release, began = threading.Event(), threading.Event()

    def work(attempt: object) -> Outcome:
        began.set()
        release.wait()
        return Done(None)

    runner = ThreadRunner(1, work, "test")
    first, second, third = attempts = [Waiting() for _ in range(3)]
    runner.submit(attempts)  # type: ignore[arg-type]
    assert began.wait(900)
    second.stop = "drain"
    runner.stop(second)  # type: ignore[arg-type]
    assert second.outcomes == [Unstarted()]
    release.set()
    until(lambda: third.outcomes)
    assert (first.outcomes, second.outcomes, third.outcomes) == ([Done(None)], [Unstarted()], [Done(None)])
    runner.close()


def test_an_attempt_gets_a_thread_of_its_own_while_another_thread_is_about_to_begin() -> None:
    taken, go_on, together = threading.Event(), threading.Event(), threading.Barrier(2)

    class PausesAfterGet(SimpleQueue[Any]):
        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            attempt = super().get(block, timeout)
            taken.set()
            assert go_on.wait(900)
            return attempt

    def work(attempt: Attempt) -> Outcome:
        together.wait(900)  # raises unless both run at once
        return Done(None)

    runner = ThreadRunner(2, work, "test")
    runner._queue = PausesAfterGet()
    first, second = Waiting(), Waiting()
    runner.submit([first])  # type: ignore[list-item]
    assert taken.wait(900)
    runner.submit([second])  # type: ignore[list-item]
    go_on.set()
    until(lambda: first.outcomes and second.outcomes)
    assert (first.outcomes, second.outcomes) == ([Done(None)], [Done(None)])
    runner.close()


def test_the_attempt_whose_code_a_loop_runs_is_found_from_another_thread() -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        until(lambda: loop.is_running())
        assert occupant(thread.ident) is None
        assert occupant(None) is None
        watch = LoopWatch(loop, lambda: thread.ident)
        watch.look(time.monotonic())
        until(lambda: watch.answers)
        assert watch.look(time.monotonic())[0] < 60
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(900)
        loop.close()
