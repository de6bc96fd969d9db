"""Resources, middleware and the pipeline's own error classes, in every runner."""

import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from onerow import AsyncContext, Context, Item, Pipeline, PipelineError, ResourceError, Retry, Snooze, Status, Worker
from onerow.engine.queue.queue import Queue
from onerow.engine.views import Views
from tests.engine import extended_app
from tests.engine.conftest import ended, until, working

KINDS = ["thread", "async", "isolated", "isolated async"]


@pytest.fixture(autouse=True)
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "notes"
    file.touch()
    monkeypatch.setenv("EXTENDED_NOTES", str(file))
    return file


def said(notes: Path) -> list[str]:
    return [line.rpartition(" ")[0] for line in notes.read_text().splitlines()]


@pytest.mark.parametrize("kind", KINDS)
def test_resources_are_made_where_the_handler_runs_and_closed_at_the_end(
    sqlite_queue: Queue, kind: str, notes: Path
) -> None:
    queue, pipeline = sqlite_queue, extended_app.make(kind)
    with working(queue, pipeline, concurrency=1):
        for number in range(2):
            task = ended(queue, queue.add(pipeline, number, user_id="ann").task_id)
            assert (task.status, task.result) == (Status.COMPLETED, [True, "ann"])
    made = ["make model", "make pool"] if kind.endswith("async") else ["make model"]
    closed = [each.replace("make", "close") for each in reversed(made)]
    attempt = ["enter act", "leave act"]
    expected = 2 * [*made, *attempt, *closed] if kind.startswith("isolated") else [*made, *attempt, *attempt, *closed]
    until(lambda: said(notes) == expected)  # a process of an attempt ends after its outcome
    here = {line.rpartition(" ")[2] == str(os.getpid()) for line in notes.read_text().splitlines()}
    assert here == {not kind.startswith("isolated")}


@pytest.mark.parametrize("kind", KINDS)
def test_the_pipeline_maps_exceptions_to_error_classes(sqlite_queue: Queue, kind: str) -> None:
    queue, pipeline = sqlite_queue, extended_app.make(kind)
    found = {}
    with working(queue, pipeline):
        for job in ("gone", "key", "other", "refuse"):
            task = ended(queue, queue.add(pipeline, job).task_id)
            found[job] = (task.error_class, task.retry_count, task.error)
    assert found == {
        "gone": ("permanent", 0, "Gone: no more tickets"),
        "key": ("permanent", 0, "KeyError: 'name'"),
        "other": ("unknown", 1, "LookupError: elsewhere"),
        "refuse": ("auth", 0, "middleware refusing: PermissionError: no such tenant"),
    }


def test_a_suspect_gets_resources_and_middleware_in_its_own_process(sqlite_queue: Queue, notes: Path) -> None:
    queue, pipeline = sqlite_queue, extended_app.make("thread")
    queue.serve(pipeline)
    task = queue.add(pipeline, 1, user_id="bob")
    queue.claim(pipeline, lease_for="100ms")
    until(lambda: queue.rescue())
    with working(queue, pipeline):
        assert ended(queue, task.task_id).result == [True, "bob"]
    assert len({line.rpartition(" ")[2] for line in notes.read_text().splitlines() if "model" in line}) == 2


def test_a_batch_handler_takes_resources(queue: Queue) -> None:
    pipeline = extended_app.make_batch()
    tasks = queue.add_many(pipeline, [1, 2])
    with working(queue, pipeline):
        assert [ended(queue, task.task_id).result for task in tasks] == [os.getpid()] * 2


def test_a_worker_does_not_start_without_a_resource_and_no_task_fails(queue: Queue) -> None:
    pipeline = Pipeline("broken")
    pipeline.resource(extended_app.broken)
    pipeline.phase(name="act")(extended_app.use_broken)
    task = queue.add(pipeline)
    with pytest.raises(ResourceError, match="resource 'broken' could not be made: FileNotFoundError"):
        Worker(queue, [pipeline]).run()
    now = queue.get(task.task_id)
    assert (now.status, now.attempt, now.history) == (Status.WAITING, 0, [])


def test_a_resource_that_fails_in_an_isolated_process_puts_the_task_off(
    sqlite_queue: Queue, notes: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queue, pipeline = sqlite_queue, extended_app.make_broken()
    task = queue.add(pipeline)
    with working(queue, pipeline):
        until(lambda: queue.get(task.task_id).history)
        now = queue.get(task.task_id)
        assert (now.status, now.retry_count, now.attempt, now.error) == (Status.WAITING, 0, 0, None)
        assert now.history[-1].note == "resource 'broken' could not be made: FileNotFoundError: no model.bin"
        assert "resource 'broken' could not be made" in Views(queue).why(now).sentence
        notes.with_suffix(".mended").touch()
        queue.reschedule(task.task_id, queue.store.now())
        assert ended(queue, task.task_id).result == "mended"
    assert "resource 'broken' could not be made" in caplog.text


def test_only_resources_that_a_served_phase_takes_are_made(queue: Queue) -> None:
    pipeline = Pipeline("two")
    pipeline.resource(extended_app.broken)
    pipeline.phase(name="plain")(lambda job: 1)
    pipeline.phase(name="act")(extended_app.use_broken)
    task = queue.add(pipeline)
    with working(queue, pipeline, phases=["plain"]):
        until(lambda: queue.get(task.task_id).phase == "act")


def test_one_function_for_two_pipelines_is_one_resource(queue: Queue, notes: Path) -> None:
    first, second = extended_app.make("thread"), Pipeline("second")
    second.resource(extended_app.model, name="brain")
    second.phase(name="think")(lambda job, brain: brain["pid"])
    with working(queue, first, second):
        ended(queue, queue.add(first, 1).task_id)
        assert ended(queue, queue.add(second).task_id).result == os.getpid()
    assert said(notes).count("make model") == 1


def test_a_resource_that_cannot_be_closed_is_reported(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    pipeline = Pipeline("one")

    @pipeline.resource
    @contextmanager
    def client() -> Iterator[int]:
        yield 1
        raise OSError("still busy")

    pipeline.phase(name="act")(lambda job, client: client)
    with working(queue, pipeline):
        assert ended(queue, queue.add(pipeline).task_id).result == 1
    assert "resource 'client' could not be closed: OSError: still busy" in caplog.text


def test_wrong_resources_and_middleware_are_errors_when_the_pipeline_is_built() -> None:
    pipeline = Pipeline("wrong")
    pipeline.resource(extended_app.pool)
    with pytest.raises(PipelineError, match="can't take the async resource 'pool'"):
        pipeline.phase(name="act")(lambda job, pool: pool)
    with pytest.raises(PipelineError, match="takes no parameters, not 'url'"):
        pipeline.resource(lambda url: url, name="client")
    with pytest.raises(PipelineError, match="generator function of the context"):
        pipeline.middleware(lambda ctx: None)
    with pytest.raises(PipelineError, match="already a resource 'pool'"):
        pipeline.resource(extended_app.model, name="pool")
    with pytest.raises(PipelineError, match="has a resource 'pool'"):
        pipeline.phase(name="pool")(lambda job: None)
    with pytest.raises(PipelineError, match=r"names no earlier phase .* and no resource"):
        pipeline.phase(name="act")(lambda job, modell: modell)
    with pytest.raises(PipelineError, match="unknown error class 'transient'"):
        Pipeline("wrong", errors={ValueError: "transient"})
    with pytest.raises(PipelineError, match="'ValueError' is not one"):
        Pipeline("wrong", errors={"ValueError": "permanent"})  # type: ignore[dict-item]


def test_what_an_isolated_process_cannot_import_is_an_error_at_start(sqlite_queue: Queue) -> None:
    pipeline = extended_app.make("isolated")

    @pipeline.middleware
    def local(ctx: Context) -> Iterator[None]:
        yield

    with pytest.raises(PipelineError, match=r"phase 'act' of pipeline 'extended' runs in a process .*local"):
        Worker(sqlite_queue, [pipeline]).run()


def test_an_async_middleware_around_a_plain_function_is_an_error_at_start(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = extended_app.make("thread")
    waker = queue.store.waker()
    closed: list[bool] = []
    close = waker.close

    def recorded() -> None:
        closed.append(True)
        close()

    monkeypatch.setattr(queue.store, "waker", lambda: waker)
    monkeypatch.setattr(waker, "close", recorded)

    @queue.middleware
    async def timing(ctx: AsyncContext) -> AsyncIterator[None]:
        yield

    with pytest.raises(PipelineError, match=r"timing is async and can't surround the plain function act"):
        Worker(queue, [pipeline]).run()
    assert closed  # a start that fails leaves no connection open


# ── middleware ──


def recording(name: str, heard: list[str]) -> Any:
    def middleware(ctx: Context) -> Iterator[None]:
        heard.append(f"{name} in")
        try:
            yield
        except Exception as error:
            heard.append(f"{name} {type(error).__name__}")
            raise
        finally:
            heard.append(f"{name} out")

    return middleware


def arecording(name: str, heard: list[str]) -> Any:
    async def middleware(ctx: AsyncContext) -> AsyncIterator[None]:
        heard.append(f"{name} in")
        yield
        heard.append(f"{name} out")

    return middleware


@pytest.mark.parametrize("kind", ["thread", "async"])
def test_the_queue_s_middleware_is_outside_and_each_list_is_in_order(queue: Queue, kind: str) -> None:
    heard: list[str] = []
    pipeline = Pipeline("ordered")
    inner = arecording if kind == "async" else recording
    pipeline.middleware(inner("third", heard))
    pipeline.middleware(recording("fourth", heard))
    queue.middleware(recording("first", heard))
    queue.middleware(recording("second", heard))
    if kind == "async":

        @pipeline.phase(name="act")
        async def aact(job: object) -> None:
            heard.append("handler")

    else:
        pipeline.phase(name="act")(lambda job: heard.append("handler"))
    with working(queue, pipeline):
        ended(queue, queue.add(pipeline).task_id)
    names = ["first", "second", "third", "fourth"]
    assert heard == [f"{name} in" for name in names] + ["handler"] + [f"{name} out" for name in reversed(names)]


@pytest.mark.parametrize("kind", ["thread", "async"])
def test_a_middleware_sees_the_handler_s_exception_and_cannot_hide_it(queue: Queue, kind: str) -> None:
    heard: list[str] = []
    pipeline = Pipeline("failing")
    pipeline.middleware(recording("outer", heard))

    @pipeline.middleware
    def swallowing(ctx: Context) -> Iterator[None]:
        try:
            yield
        except ValueError:
            heard.append("swallowed")

    if kind == "async":

        @pipeline.phase(retry=Retry(0), name="act")
        async def aact(job: object) -> None:
            raise ValueError("broken")

    else:

        @pipeline.phase(retry=Retry(0), name="act")
        def act(job: object) -> None:
            raise ValueError("broken")

    with working(queue, pipeline):
        task = ended(queue, queue.add(pipeline).task_id)
    assert (task.status, task.error) == (Status.FAILED, "ValueError: broken")
    assert heard == ["outer in", "swallowed", "outer ValueError", "outer out"]


def test_an_exception_of_a_middleware_is_the_attempt_s_and_outer_ones_see_it(queue: Queue) -> None:
    heard: list[str] = []
    pipeline = Pipeline("failing")
    pipeline.middleware(recording("outer", heard))

    @pipeline.middleware
    def closing(ctx: Context) -> Iterator[None]:
        yield
        if ctx.task.payload == "later":
            raise Snooze("1h")
        raise ConnectionError("no statsd")

    pipeline.phase(retry=Retry(0), name="act")(lambda job: "result")
    with working(queue, pipeline):
        task = ended(queue, queue.add(pipeline).task_id)
        later = queue.add(pipeline, "later").task_id
        until(lambda: [entry.what for entry in queue.get(later).history] == ["snoozed"])
    assert (task.status, task.error_class) == (Status.FAILED, "network")
    assert task.error is not None
    assert task.error.startswith("middleware ")
    assert task.error.endswith("closing: ConnectionError: no statsd")
    assert heard[:3] == ["outer in", "outer ConnectionError", "outer out"]


def test_middleware_surrounds_a_batch_once_and_sees_its_tasks(queue: Queue) -> None:
    heard: list[list[Any]] = []
    pipeline = Pipeline("batches")

    @pipeline.middleware
    def batch(ctx: Context) -> Iterator[None]:
        heard.append([task.payload for task in ctx.tasks])
        yield

    @pipeline.batch("embed", size=2, within="10s")
    def embed(items: list[Item[int]]) -> None:
        for item in items:
            item.done()

    tasks = queue.add_many(pipeline, [1, 2])
    with working(queue, pipeline):
        for task in tasks:
            ended(queue, task.task_id)
    assert [sorted(each) for each in heard] == [[1, 2]]


def test_a_cancel_reaches_a_handler_inside_middleware(queue: Queue) -> None:
    heard: list[str] = []
    pipeline = Pipeline("slow")
    pipeline.middleware(recording("outer", heard))
    begun = threading.Event()

    @pipeline.phase(name="act")
    def act(job: object, ctx: Context) -> None:
        begun.set()
        for _ in ctx.track(range(100_000)):
            threading.Event().wait(0.01)

    task = queue.add(pipeline)
    with working(queue, pipeline):
        assert begun.wait(900)
        queue.cancel(task.task_id)
        assert ended(queue, task.task_id).status is Status.CANCELLED
    assert heard == ["outer in", "outer out"]
