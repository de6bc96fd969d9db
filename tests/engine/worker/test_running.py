"""Running phases: async, in threads, in processes; one row from the first phase to the last."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from onerow import Context, Filter, Pipeline, Queue, Status, TaskAdvanced, TaskCompleted
from tests.engine.kit import ON_SQLITE, ended, everything, finish_all, history_of, until, work, working
from tests.engine.worker import isolated_app


@dataclass
class Video:
    topic: str
    length: int = 0


class Script(msgspec.Struct):
    words: list[str]


def test_one_row_goes_through_all_its_phases_in_order(queue: Queue) -> None:
    videos = Pipeline("videos")

    @videos.phase
    def script(job: dict[str, str]) -> str:
        return f"script of {job['topic']}"

    @videos.phase
    async def film(job: dict[str, str], script: str) -> dict[str, str]:
        await asyncio.sleep(0)
        return {"from": script}

    @videos.phase
    def post(job: dict[str, str], film: dict[str, str], *, script: str, ctx: Context) -> list[object]:
        return [film, script, ctx.phase]

    task = queue.add(videos, {"topic": "조수 🌊"})
    work(queue, videos)
    done = queue.get(task.task_id)
    assert done.status is Status.COMPLETED
    assert done.results == {
        "script": "script of 조수 🌊",
        "film": {"from": "script of 조수 🌊"},
        "post": [{"from": "script of 조수 🌊"}, "script of 조수 🌊", "post"],
    }
    assert history_of(done) == [("advanced", "script"), ("advanced", "film"), ("completed", "post")]
    assert (done.token, done.crash_count, done.retry_count, done.leased_by, done.slot) == (3, 0, 0, None, None)
    assert everything(queue) == [done]


def test_arguments_have_the_types_that_the_handler_declares(queue: Queue) -> None:
    videos = Pipeline("videos")
    seen: list[object] = []

    @videos.phase
    def script(job: Video) -> Script:
        seen.append(job)
        return Script(["to", "be"])

    @videos.phase
    async def film(job: Video, script: Script) -> None:
        seen.extend([job, script])

    queue.add(videos, Video("tides", 3))
    work(queue, videos)
    assert seen == [Video("tides", 3), Video("tides", 3), Script(["to", "be"])]


def test_the_result_of_a_phase_that_returned_nothing_is_none(queue: Queue) -> None:
    videos = Pipeline("videos")

    @videos.phase
    def script(job: object) -> None: ...

    @videos.phase
    def film(job: object, script: Script) -> bool:
        return script is None

    task = queue.add(videos)
    work(queue, videos)
    assert queue.get(task.task_id).results == {"film": True}


@pytest.mark.parametrize("value", [None, True, 0, -(2**63), 2**63 - 1, 1.5, "", "조수", [], {}, [{"a": [None]}]])
def test_a_result_is_stored_unchanged(queue: Queue, value: Any) -> None:
    echo = Pipeline("echo")

    @echo.phase
    def say(job: object) -> object:
        return job

    @echo.phase
    async def hear(job: object, say: object) -> list[object]:
        return [job, say]

    task = queue.add(echo, value)
    work(queue, echo)
    assert queue.get(task.task_id).results["hear"] == [value, value]


def test_async_handlers_run_together_on_one_loop(queue: Queue) -> None:
    meet = Pipeline("meet")
    together: list[asyncio.Event] = []

    @meet.phase
    async def wait(job: object) -> None:
        mine = asyncio.Event()
        together.append(mine)
        if len(together) == 5:
            for event in together:
                event.set()
        await asyncio.wait_for(mine.wait(), 30)

    queue.add_many(meet, range(5))
    assert {task.status for task in finish_all(queue, meet, concurrency=5)} == {Status.COMPLETED}


def test_threads_run_together_and_no_more_than_the_concurrency(queue: Queue) -> None:
    meet = Pipeline("meet")
    barrier = threading.Barrier(4, timeout=900)

    @meet.phase
    def wait(job: object) -> None:
        barrier.wait()

    queue.add_many(meet, range(8))
    assert {task.status for task in finish_all(queue, meet, concurrency=4)} == {Status.COMPLETED}
    assert barrier.n_waiting == 0


def test_handlers_do_not_see_each_others_context_variables(queue: Queue) -> None:
    seen: ContextVar[int] = ContextVar("seen", default=-1)
    found: list[int] = []
    both = Pipeline("both")

    @both.phase
    async def one(job: int) -> None:
        found.append(seen.get())
        seen.set(job)

    @both.phase
    def two(job: int) -> None:
        found.append(seen.get())
        seen.set(job)

    queue.add_many(both, range(10))
    work(queue, both, concurrency=1)
    assert found == [-1] * 20


@ON_SQLITE
@pytest.mark.parametrize("make", [isolated_app.make, isolated_app.make_async], ids=["def", "async def"])
def test_an_isolated_handler_runs_in_its_own_process(queue: Queue, make: Callable[[], Pipeline]) -> None:
    task = queue.add(make(), {"do": "return", "value": ["조수", 1]})
    work(queue, make())
    done = queue.get(task.task_id)
    assert done.status is Status.COMPLETED, done.error
    assert done.results["act"]["value"] == ["조수", 1]
    assert done.results["act"]["pid"] != os.getpid()
    assert done.results["act"]["key"] == f"{task.task_id}:act:0"
    assert done.results["act"]["token"] == 1


@ON_SQLITE
def test_isolated_handlers_get_typed_arguments_and_earlier_results(queue: Queue) -> None:
    task = queue.add(isolated_app.make_chain(), isolated_app.Clip("a.mp4", 10.0))
    work(queue, isolated_app.make_chain())
    assert queue.get(task.task_id).results["join"] == "a.mp4 → a.mp4.cut of 5.0"


def test_several_pipelines_share_one_worker(queue: Queue) -> None:
    pipelines = [Pipeline(f"p{number}") for number in range(4)]
    for pipeline in pipelines:
        pipeline.phase(name="run")(lambda job: job)
        queue.add_many(pipeline, range(20))
    work(queue, *pipelines)
    tallies = {(tally.pipeline, tally.status): tally.count for tally in queue.count()}
    assert tallies == {(f"p{number}", Status.COMPLETED): 20 for number in range(4)}


def test_a_worker_may_serve_some_phases_only(queue: Queue) -> None:
    videos = Pipeline("videos")
    videos.phase(name="script")(lambda job: 1)
    videos.phase(name="film")(lambda job: 2)
    task = queue.add(videos)
    work(queue, videos, phases=["script"])
    assert (queue.get(task.task_id).phase, queue.get(task.task_id).status) == ("film", Status.WAITING)
    work(queue, phases=["videos.film"])
    assert queue.get(task.task_id).status is Status.COMPLETED


def test_lower_priorities_run_first_and_then_the_order_of_due_times(queue: Queue) -> None:
    order: list[str] = []
    posts = Pipeline("posts")

    @posts.phase
    async def note(job: str) -> None:
        order.append(job)

    soon = queue.store.now() + timedelta(seconds=2)  # later than all four adds, even on a loaded machine
    queue.add(posts, "third", run_at=soon)
    queue.add(posts, "second", run_at=soon - timedelta(milliseconds=10))
    queue.add(posts, "last", priority=10)
    queue.add(posts, "first", priority=-10)
    until(lambda: queue.store.now() > soon)
    work(queue, posts, concurrency=1)
    assert order == ["first", "second", "third", "last"]


def test_nothing_starts_before_it_is_due(queue: Queue) -> None:
    begun: list[float] = []
    posts = Pipeline("posts")

    @posts.phase
    def note(job: object, ctx: Context) -> None:
        assert ctx.task.started_at is not None
        begun.append((ctx.task.started_at - ctx.task.run_at).total_seconds())

    now = queue.store.now()
    queue.add_many(posts, range(5), run_at=now + timedelta(milliseconds=700))
    queue.add_many(posts, range(5), run_at=now + timedelta(hours=1))
    work(queue, posts)
    assert begun == []
    with working(queue, posts):
        until(lambda: len(begun) == 5)
    assert min(begun) >= 0


def test_a_task_added_while_the_worker_is_idle_is_claimed_at_once(queue: Queue) -> None:
    posts = Pipeline("posts")
    posts.phase(name="run")(lambda job: None)
    with working(queue, posts, interval=60):
        for _ in range(3):
            ended(queue, queue.add(posts), seconds=300)


@ON_SQLITE
@pytest.mark.parametrize("kind", ["async", "thread"])
def test_an_attempt_longer_than_its_lease_keeps_it_also_in_a_later_phase(queue: Queue, kind: str) -> None:
    slow = Pipeline("slow")
    slow.phase(name="first")(lambda job: 1)
    if kind == "async":

        @slow.phase(name="second", lease="1s")
        async def wait(job: object) -> None:
            await asyncio.sleep(2.5)
    else:

        @slow.phase(name="second", lease="1s")
        def block(job: object) -> None:
            threading.Event().wait(2.5)

    task = queue.add(slow)
    with working(queue, slow):
        done = ended(queue, task)
    assert done.status is Status.COMPLETED
    assert (done.crash_count, done.token) == (0, 2)
    assert history_of(done) == [("advanced", "first"), ("completed", "second")]


def test_completed_and_advanced_tasks_send_events(queue: Queue) -> None:
    heard: list[tuple[str, str]] = []

    def tell(event: TaskAdvanced | TaskCompleted) -> None:
        heard.append((event.phase if isinstance(event, TaskAdvanced) else "completed", event.task.phase))

    queue.on(TaskAdvanced, tell)
    queue.on(TaskCompleted, tell)
    videos = Pipeline("videos")
    videos.phase(name="script")(lambda job: 1)
    videos.phase(name="film")(lambda job: 2)
    queue.add(videos)
    work(queue, videos)
    assert heard == [("script", "film"), ("completed", "film")]


def test_thousands_of_small_tasks_complete_each_with_one_outcome(queue: Queue) -> None:
    posts = Pipeline("posts")

    @posts.phase
    async def tag(job: int) -> int:
        return job + 1

    queue.add_many(posts, range(3000))
    work(queue, posts)
    done = everything(queue)
    assert all(task.results["tag"] == task.payload + 1 for task in done)
    assert {(task.status, task.token, len(task.history)) for task in done} == {(Status.COMPLETED, 1, 1)}
    assert queue.count(Filter(statuses=frozenset({Status.WAITING, Status.PROCESSING}))) == []


def test_a_program_can_be_profiled_after_a_worker_ran_in_it() -> None:
    """In its own process: if CPython's flag for pending exceptions stays set, a profiled call never returns."""
    script = """
import sys, threading
from onerow import Pipeline, Queue, Worker
queue, pipeline = Queue("memory://"), Pipeline("p")
pipeline.phase(name="work")(lambda payload: None)
queue.add(pipeline)
Worker(queue, [pipeline], until_idle=True).run()
threading.setprofile(lambda *given: None)
thread = threading.Thread(target=lambda: None, daemon=True)
thread.start()
thread.join(900)
sys.exit(thread.is_alive())
"""
    assert subprocess.run([sys.executable, "-c", script], timeout=900, check=False).returncode == 0
