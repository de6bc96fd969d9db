"""Failing: how the exception of a handler decides the outcome of its task."""

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from onerow import (
    AsyncContext,
    BadInput,
    Cancelled,
    Context,
    Item,
    Permanent,
    Pipeline,
    Queue,
    RateLimited,
    Retry,
    Snooze,
    Status,
    Task,
    TaskFailed,
    TaskRetried,
)
from tests.engine.kit import ON_SQLITE, ended, finish_all, history_of, texts, until, work, working
from tests.engine.worker import isolated_app

SOON = Retry(2, wait="10ms")


def raising(make: Callable[[], BaseException], kind: str = "thread", **options: Any) -> Pipeline:
    """Return a pipeline whose only phase raises."""
    pipeline = Pipeline("raising")
    options = {"retry": SOON} | options

    @pipeline.phase(**options)
    def run(job: object) -> None:
        raise make()

    if kind == "thread":
        return pipeline
    pipeline = Pipeline("raising")

    @pipeline.phase(name="run", **options)
    async def arun(job: object) -> None:
        await asyncio.sleep(0)
        raise make()

    return pipeline


def outcome(queue: Queue, pipeline: Pipeline, **options: Any) -> Task:
    queue.add(pipeline, **options)
    (task,) = finish_all(queue, pipeline)
    return task


class TooManyRequests(Exception): ...


class HttpError(Exception):
    def __init__(self, status_code: int) -> None:
        self.status_code = status_code


CLASSES: dict[str, tuple[Callable[[], BaseException], int]] = {
    "network": (lambda: ConnectionError("no net"), 3),
    "unknown": (lambda: ValueError("bad"), 3),
    "resource": (lambda: OSError(28, "no space left"), 3),
    "limit": (lambda: RateLimited("10ms"), 3),
    "auth": (lambda: PermissionError("no key"), 1),
    "permanent": (lambda: Permanent("hopeless"), 1),
}


@pytest.mark.parametrize("kind", ["thread", "async"])
@pytest.mark.parametrize("error_class", CLASSES)
def test_each_error_class_has_its_number_of_attempts(queue: Queue, error_class: str, kind: str) -> None:
    make, attempts = CLASSES[error_class]
    task = outcome(queue, raising(make, kind))
    assert (task.status, task.error_class) == (Status.FAILED, error_class)
    assert len([entry for entry in task.history if entry.what == "failed"]) == attempts
    assert task.retry_count == attempts - 1
    assert (task.attempt, task.token) == (attempts, attempts)


@pytest.mark.parametrize(
    "make, error_class",
    [
        (lambda: TimeoutError("slow"), "network"),
        (lambda: TooManyRequests(), "limit"),
        (lambda: HttpError(429), "limit"),
        (lambda: HttpError(401), "auth"),
        (lambda: HttpError(503), "network"),
        (lambda: HttpError(404), "permanent"),
        (lambda: OSError(28, "no space left"), "resource"),
        (lambda: SystemExit(3), "unknown"),
        (lambda: KeyboardInterrupt(), "unknown"),
        (lambda: ExceptionGroup("both", [ValueError("x"), ConnectionError("y")]), "network"),
        (lambda: ExceptionGroup("both", [ConnectionError("x"), Permanent("y")]), "permanent"),
        (lambda: ExceptionGroup("deep", [ExceptionGroup("in", [PermissionError("x")])]), "auth"),
    ],
)
def test_the_error_class_follows_from_the_exception(
    queue: Queue, make: Callable[[], BaseException], error_class: str
) -> None:
    task = outcome(queue, raising(make, retry=Retry(0)))
    assert (task.status, task.error_class) == (Status.FAILED, error_class)


def test_the_error_has_the_message_and_the_traceback(queue: Queue) -> None:
    task = outcome(queue, raising(lambda: ValueError("bad 조수"), retry=Retry(0)))
    entry = task.history[-1]
    assert task.error == entry.error == "ValueError: bad 조수"
    assert entry.exception == "ValueError"
    assert entry.where.startswith("test_failures.py:")


async def fetch() -> None:
    raise ValueError("no net")


def in_a_step(kind: str) -> Pipeline:
    """Return a pipeline whose only phase calls a step, which raises."""
    pipeline = Pipeline("stepping")
    match kind:
        case "thread":

            @pipeline.phase(retry=0)
            def act(job: object, ctx: Context) -> None:
                ctx.step("fetch", isolated_app.fetch)

        case "async":

            @pipeline.phase(name="act", retry=0)
            async def act_async(job: object, ctx: AsyncContext) -> None:
                await ctx.step("fetch", fetch)

        case "async with a plain function":

            @pipeline.phase(name="act", retry=0)
            async def act_mixed(job: object, ctx: AsyncContext) -> None:
                await ctx.step("fetch", isolated_app.fetch)

        case "process":
            pipeline.phase(isolate="process", retry=0)(isolated_app.act)
    return pipeline


@ON_SQLITE
@pytest.mark.parametrize("kind", ["thread", "async", "async with a plain function", "process"])
def test_a_traceback_begins_in_the_handler_and_folds_the_frames_of_onerow(queue: Queue, kind: str) -> None:
    task = queue.add(in_a_step(kind), {"do": "step"})
    work(queue, in_a_step(kind))
    trace = "\n".join(texts(queue, task, "error"))
    found = re.findall(r"^  (?:File .* in (.*)|(…) \d+ frames? of onerow)$", trace, re.MULTILINE)
    (handler, _), (_, folded), (step, _) = found
    assert (handler.startswith("act"), folded, step) == (True, "…", "fetch")
    assert trace.startswith("Traceback (most recent call last):\n  File ")
    assert trace.endswith("Error: no net")


@ON_SQLITE
def test_the_traceback_of_a_middleware_has_no_frames_of_onerow_either(queue: Queue) -> None:
    pipeline = raising(lambda: ValueError("bad"), retry=Retry(0))

    @pipeline.middleware
    def check(ctx: Context) -> Iterator[None]:
        isolated_app.fetch()
        yield

    task = outcome(queue, pipeline)
    trace = "\n".join(texts(queue, task, "error"))
    assert re.findall(r" in (\w+)$", trace, re.MULTILINE) == ["check", "fetch"]
    assert trace.endswith("check raised ConnectionError")


@ON_SQLITE
def test_a_result_that_is_refused_has_a_message_and_no_frames(queue: Queue) -> None:
    pipeline = Pipeline("returning")
    pipeline.phase(name="run")(lambda job: {"at": object()})
    task = queue.add(pipeline)
    work(queue, pipeline)
    assert "result.at is an object, which is not a JSON value; use text" in (queue.get(task.task_id).error or "")
    (error, fix) = texts(queue, task, "error")
    assert error == "onerow.core.errors.BadPayload: result.at is an object, which is not a JSON value"
    assert fix.startswith("use text, numbers")


@ON_SQLITE
def test_a_coroutine_in_place_of_a_result_is_told_to_be_awaited(queue: Queue) -> None:
    pipeline = Pipeline("returning")
    coroutine = fetch()
    pipeline.phase(name="run")(lambda job: coroutine)
    task = queue.add(pipeline)
    work(queue, pipeline)
    coroutine.close()
    assert queue.get(task.task_id).error == (
        "BadPayload: result is a coroutine, which is not a JSON value; make the handler async def, and await the call"
    )


def test_an_error_text_that_cannot_be_stored_is_made_storable(queue: Queue) -> None:
    task = outcome(queue, raising(lambda: ValueError("nul \x00 and \ud800 and " + "x" * 100_000), retry=Retry(0)))
    assert task.status is Status.FAILED
    assert len(task.error or "") <= 2000


def test_a_phase_can_override_the_retries_of_an_error_class(queue: Queue) -> None:
    stubborn = Retry(2, wait="1ms", classes={"auth": True, "network": False})
    assert outcome(queue, raising(lambda: PermissionError("no key"), retry=stubborn)).retry_count == 2
    task = queue.add(raising(lambda: ConnectionError("no net"), retry=stubborn))
    work(Queue(queue.store), raising(lambda: ConnectionError("no net"), retry=stubborn))
    assert queue.get(task.task_id).retry_count == 0


def test_max_retries_of_the_task_apply_to_all_phases_together(queue: Queue) -> None:
    pipeline = Pipeline("two")

    @pipeline.phase(retry=Retry(0, wait="1ms"))
    def first(job: object, ctx: Context) -> None:
        if ctx.attempt < 3:
            raise ValueError

    @pipeline.phase(retry=Retry(9, wait="1ms"))
    def second(job: object) -> None:
        raise ValueError

    queue.add(pipeline, max_retries=2)
    (task,) = finish_all(queue, pipeline)
    assert (task.status, task.phase, task.retry_count, task.max_retries) == (Status.FAILED, "second", 2, 2)
    assert history_of(task) == [("failed", "first")] * 2 + [("advanced", "first")] + [("failed", "second")] * 3


def test_without_max_retries_each_phase_has_its_own_retry_budget(queue: Queue) -> None:
    pipeline = Pipeline("two")
    seen: list[str] = []

    @pipeline.phase(retry=Retry(1, wait="1ms"))
    def first(job: object) -> None:
        seen.append("first")
        if len(seen) < 2:
            raise ValueError

    @pipeline.phase(retry=Retry(2, wait="1ms"))
    def second(job: object) -> None:
        seen.append("second")
        raise ValueError

    queue.add(pipeline)
    (task,) = finish_all(queue, pipeline)
    assert seen == ["first"] * 2 + ["second"] * 3
    assert (task.retry_count, task.max_retries) == (2, 2)


def test_the_waits_between_retries_grow(queue: Queue) -> None:
    pipeline = raising(lambda: ValueError(), retry=Retry(3, wait="1h", factor=3, jitter=0))
    task = queue.add(pipeline)
    for wait in (1, 3, 9):
        work(queue, pipeline)
        now = queue.get(task.task_id)
        assert now.status is Status.WAITING
        assert abs(now.run_at - now.updated_at - timedelta(hours=wait)) < timedelta(seconds=1)
        queue.reschedule(task.task_id, queue.store.now())
    work(queue, pipeline)
    assert queue.get(task.task_id).status is Status.FAILED


@pytest.mark.parametrize("kind", ["thread", "async"])
def test_a_snoozed_task_runs_again_later_at_no_cost(queue: Queue, kind: str) -> None:
    pipeline = raising(lambda: Snooze("1h"), kind)
    task = queue.add(pipeline)
    work(queue, pipeline)
    now = queue.get(task.task_id)
    assert (now.status, now.retry_count, now.error) == (Status.WAITING, 0, None)
    assert now.run_at - now.updated_at == timedelta(hours=1)
    assert history_of(now) == [("snoozed", "run")]


def test_a_rate_limited_task_waits_for_the_given_time(queue: Queue) -> None:
    pipeline = raising(lambda: RateLimited("1h", "later"))
    task = queue.add(pipeline)
    work(queue, pipeline)
    now = queue.get(task.task_id)
    assert (now.status, now.error_class, now.error, now.retry_count) == (Status.WAITING, "limit", "later", 1)
    assert now.run_at - now.updated_at == timedelta(hours=1)


@pytest.mark.parametrize("how", ["handler", "pull"])
def test_rate_limited_for_a_phase_holds_the_whole_phase(queue: Queue, how: str) -> None:
    calls: list[object] = []
    pipeline = Pipeline("limited")

    @pipeline.phase
    def run(job: object) -> None:
        calls.append(job)
        raise RateLimited("1h", scope="phase")

    queue.serve(pipeline)
    tasks = queue.add_many(pipeline, range(5))
    if how == "handler":
        work(queue, pipeline, concurrency=1)
        assert len(calls) == 1
    else:
        queue.claim(pipeline)[0].fail(RateLimited("1h", scope="phase"))
    assert len(queue.claim(pipeline, limit=10)) == 0
    assert {queue.get(task.task_id).status for task in tasks} == {Status.WAITING}
    (hold,) = queue.store.notes("hold")
    assert hold.name == "limited/run"


def test_a_snooze_for_a_phase_holds_it_and_costs_no_retry(queue: Queue) -> None:
    pipeline = Pipeline("limited")

    @pipeline.batch("run", size=10, within="1s", retry=0)
    def run(items: list[Item[int]]) -> None:
        items[0].snooze("1h", "the service is down", scope="phase")
        raise Snooze("1h", "the service is down", scope="phase")

    queue.serve(pipeline)
    queue.add_many(pipeline, range(3))
    work(queue, pipeline)
    assert len(queue.claim(pipeline, limit=10)) == 0
    assert {(task.status, task.retry_count) for task in queue.find(limit=10).tasks} == {(Status.WAITING, 0)}
    (hold,) = queue.store.notes("hold")
    assert hold.name == "limited/run"
    assert "the service is down" in str(hold.body)
    with pytest.raises(BadInput, match="scope must be"):
        Snooze("1h", scope="world")  # type: ignore[arg-type]


def test_a_held_phase_continues_after_the_hold(queue: Queue) -> None:
    calls: list[object] = []
    pipeline = Pipeline("limited")

    @pipeline.phase
    def run(job: object) -> None:
        calls.append(job)
        if len(calls) == 1:
            raise RateLimited("500ms", scope="phase")

    queue.add_many(pipeline, range(5))
    assert {task.status for task in finish_all(queue, pipeline, concurrency=1)} == {Status.COMPLETED}
    assert len(calls) == 6


@pytest.mark.parametrize("make", [asyncio.CancelledError, Cancelled])
@pytest.mark.parametrize("kind", ["thread", "async"])
def test_a_cancellation_that_was_not_requested_is_a_failure(
    queue: Queue, make: Callable[[], BaseException], kind: str
) -> None:
    task = outcome(queue, raising(make, kind, retry=Retry(1, wait="1ms")))
    assert (task.status, task.error_class, task.retry_count) == (Status.FAILED, "unknown", 1)
    assert "without a request to stop" in (task.error or "")


def test_an_async_handler_that_cancels_itself_fails_and_others_are_not_affected(queue: Queue) -> None:
    pipeline = Pipeline("raising")

    @pipeline.phase(retry=Retry(0))
    async def run(job: int) -> int:
        if job == 0:
            me = asyncio.current_task()
            assert me is not None
            me.cancel()
        await asyncio.sleep(0.02)
        return job

    queue.add_many(pipeline, range(10))
    done = finish_all(queue, pipeline)
    assert [task.status for task in done] == [Status.FAILED] + [Status.COMPLETED] * 9


@pytest.mark.parametrize("kind", ["thread", "async"])
@pytest.mark.parametrize("result", ["x" * 1_100_000, {"n": float("nan")}, object(), {1: 2}, 2**64, "\x00"])
def test_a_result_that_cannot_be_stored_fails_the_task_permanently(queue: Queue, result: Any, kind: str) -> None:
    pipeline = Pipeline("returning")
    if kind == "thread":
        pipeline.phase(name="run")(lambda job: result)
    else:

        @pipeline.phase
        async def run(job: object) -> Any:
            return result

    queue.add(pipeline)
    (task,) = finish_all(queue, pipeline)
    assert (task.status, task.error_class, task.retry_count) == (Status.FAILED, "permanent", 0)
    assert "result" in (task.error or "")
    assert task.results == {}


@ON_SQLITE
def test_results_that_together_make_the_row_too_large_fail_the_task_permanently(queue: Queue) -> None:
    pipeline = Pipeline("growing")
    for number in range(10):
        pipeline.phase(name=f"p{number}")(lambda job: "x" * 900_000)
    queue.add(pipeline)
    (task,) = finish_all(queue, pipeline)
    assert (task.status, task.error_class) == (Status.FAILED, "permanent")
    assert "row" in (task.error or "")


def test_retries_and_failures_send_events(queue: Queue) -> None:
    heard: list[tuple[str, str]] = []

    def tell(event: TaskRetried | TaskFailed) -> None:
        assert event.failure is not None
        heard.append((type(event).__name__, event.failure.error_class))

    queue.on(TaskRetried, tell)
    queue.on(TaskFailed, tell)
    outcome(queue, raising(lambda: ConnectionError("no net"), retry=Retry(1, wait="1ms")))
    assert heard == [("TaskRetried", "network"), ("TaskFailed", "network")]


ISOLATED = {
    "raise": (Status.FAILED, "network", "ConnectionError: no net"),
    "permanent": (Status.FAILED, "permanent", "hopeless"),
    "limited": (Status.WAITING, "limit", ""),
    "snooze": (Status.WAITING, None, ""),
    "exit": (Status.FAILED, "unknown", "SystemExit: 3"),
    "large": (Status.FAILED, "permanent", "result"),
    "unstorable": (Status.FAILED, "permanent", "result"),
    "die": (Status.FAILED, "crash", "code 9"),
}


@ON_SQLITE
def test_isolated_handlers_fail_like_others(queue: Queue) -> None:
    pipeline = isolated_app.make()
    tasks = {do: queue.add(pipeline, {"do": do}) for do in ISOLATED}
    with working(queue, pipeline, concurrency=4):
        for do, (status, _, _) in ISOLATED.items():
            if status is Status.FAILED:
                ended(queue, tasks[do])
            else:
                until(lambda do=do: queue.get(tasks[do].task_id).history)  # type: ignore[misc]
    for do, (status, error_class, text) in ISOLATED.items():
        task = queue.get(tasks[do].task_id)
        assert (do, task.status, task.error_class) == (do, status, error_class)
        assert text in (task.error or "")


@ON_SQLITE
def test_an_isolated_handler_that_uses_too_much_memory_is_killed_and_fails_as_resource(queue: Queue) -> None:
    pipeline = Pipeline("isolated")
    pipeline.phase(isolate="process", memory_limit="150MB", retry=Retry(1, wait="1ms"))(isolated_app.act)
    modest = queue.add(pipeline, {"do": "eat", "bytes": 10_000_000, "forever": False})
    greedy = queue.add(pipeline, {"do": "eat", "bytes": 300_000_000, "forever": True})
    with working(queue, pipeline):
        assert ended(queue, modest).results == {"act": 10_000_000}
        done = ended(queue, greedy)
    assert (done.status, done.error_class, done.retry_count, done.crash_count) == (Status.FAILED, "resource", 1, 0)
    assert done.error == "act used more than 150 MB of memory (its memory_limit)"


# ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["thread", "async"])
def test_work_that_takes_too_long_is_stopped_and_fails(queue: Queue, kind: str) -> None:
    pipeline = Pipeline("slow")
    stopped = threading.Event()
    if kind == "thread":

        @pipeline.phase(name="run", timeout="300ms")
        def run(job: object) -> None:
            try:
                for _ in range(6000):
                    threading.Event().wait(0.01)
            finally:
                stopped.set()
    else:

        @pipeline.phase(name="run", timeout="300ms")
        async def arun(job: object) -> None:
            try:
                await asyncio.sleep(60)
            finally:
                stopped.set()

    task = queue.add(pipeline)
    with working(queue, pipeline, grace="20s"):
        done = ended(queue, task)
        assert stopped.is_set()
    assert (done.status, done.error_class, done.retry_count) == (Status.FAILED, "timeout", 0)
    assert "300ms" in (done.error or "")


def test_a_phase_can_allow_retries_after_a_timeout(queue: Queue) -> None:
    pipeline = Pipeline("slow")

    @pipeline.phase(timeout="200ms", retry=Retry(1, wait="1ms", classes={"timeout": True}))
    async def run(job: object, ctx: AsyncContext) -> str:
        if ctx.attempt == 1:
            await asyncio.sleep(60)
        return "quick"

    task = queue.add(pipeline)
    with working(queue, pipeline):
        done = ended(queue, task)
    assert (done.status, done.results, done.retry_count) == (Status.COMPLETED, {"run": "quick"}, 1)


@ON_SQLITE
def test_an_isolated_handler_that_takes_too_long_is_stopped(queue: Queue) -> None:
    pipeline = Pipeline("isolated")
    pipeline.phase(isolate="process", timeout="1s")(isolated_app.act)
    task = queue.add(pipeline, {"do": "check"})
    with working(queue, pipeline, grace="20s"):
        done = ended(queue, task)
        until(lambda: "cleaned up" in texts(queue, task))
    assert (done.status, done.error_class) == (Status.FAILED, "timeout")
