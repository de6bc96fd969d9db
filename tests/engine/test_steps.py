"""Steps: results that a phase remembers across attempts."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from onerow import AsyncContext, Context, Pipeline, Retry, Status
from onerow.core import rules
from onerow.core.filters import Filter
from onerow.engine.queue.queue import Queue
from onerow.ports import Move
from tests.engine.conftest import ended, working
from tests.engine.kit import ON_SQLITE

QUICK = Retry(3, wait="10ms", jitter=0)


def test_a_step_runs_once_although_its_phase_runs_again(queue: Queue) -> None:
    ran: list[str] = []
    films = Pipeline("films")

    def download(url: str) -> dict[str, Any]:
        ran.append(url)
        return {"file": url.upper()}

    @films.phase(retry=QUICK)
    def fetch(job: Any, ctx: Context) -> Any:
        got = ctx.step("download", download, job["url"])
        if ctx.attempt < 3:
            raise ConnectionError("later")
        return got["file"]

    with working(queue, films):
        task = ended(queue, queue.add(films, {"url": "a"}).task_id)
    assert (task.status, task.result, ran) == (Status.COMPLETED, "A", ["a"])
    assert task.steps["fetch"]["download"]["result"] == {"file": "A"}


def test_a_handler_can_ask_whether_a_step_was_done_by_this_attempt_or_an_earlier_one(queue: Queue) -> None:
    found: list[bool] = []
    films = Pipeline("films")

    @films.phase(retry=QUICK)
    def send(job: Any, ctx: Context) -> None:
        found.append(ctx.remembers("last piece"))
        if ctx.attempt == 1:
            ctx.step("last piece", lambda: True)
            found.append(ctx.remembers("last piece"))
            raise ConnectionError("and the line is dead")

    with working(queue, films):
        ended(queue, queue.add(films).task_id)
    assert found == [False, True, True]


def test_an_async_handler_awaits_sync_and_async_steps(queue: Queue) -> None:
    ran: list[str] = []
    films = Pipeline("films")

    async def slowly(word: str) -> str:
        await asyncio.sleep(0)
        ran.append(word)
        return word

    def plainly(word: str) -> str:
        ran.append(word)
        return word

    @films.phase(retry=QUICK)
    async def fetch(job: Any, ctx: AsyncContext) -> Any:
        words = [await ctx.step("one", slowly, "a"), await ctx.step("two", plainly, "b")]
        words.append(await ctx.step("three", lambda: slowly("c")))
        if ctx.attempt == 1:
            raise ConnectionError("later")
        return words

    with working(queue, films):
        task = ended(queue, queue.add(films).task_id)
    assert (task.result, ran) == (["a", "b", "c"], ["a", "b", "c"])


class Clip(msgspec.Struct):
    path: str
    size: tuple[int, int]


def test_a_step_returns_the_type_that_its_function_declares(queue: Queue) -> None:
    seen: list[Any] = []
    films = Pipeline("films")

    def make() -> Clip:
        return Clip("a.mp4", (4, 3))

    async def make_slowly() -> Clip:
        return make()

    def pair() -> tuple[int, str]:
        return 1, "a"

    @films.phase(retry=QUICK)
    def cut(job: Any, ctx: Context) -> None:
        seen.append((ctx.step("make", make), ctx.step("pair", pair), ctx.step("plain", lambda: (1, 2))))
        if ctx.attempt == 1:
            raise ConnectionError("later")

    @films.phase(retry=QUICK)
    async def upload(job: Any, ctx: AsyncContext) -> None:
        seen.append(await ctx.step("make", make_slowly))
        if ctx.attempt == 1:
            raise ConnectionError("later")

    with working(queue, films):
        task = ended(queue, queue.add(films).task_id)
    clip = Clip("a.mp4", (4, 3))
    assert (task.error, seen) == (None, [(clip, (1, "a"), [1, 2])] * 2 + [clip] * 2)


def test_a_step_is_stored_before_the_handler_continues(queue: Queue) -> None:
    films = Pipeline("films")
    seen: list[Any] = []

    @films.phase
    def fetch(job: Any, ctx: Context) -> None:
        ctx.step("download", lambda: 1)
        seen.append(queue.get(ctx.task_id).steps)

    with working(queue, films):
        ended(queue, queue.add(films).task_id)
    assert seen[0]["fetch"]["download"]["result"] == 1


def test_a_concurrent_write_between_two_steps_is_kept(queue: Queue) -> None:
    films = Pipeline("films")

    @films.phase
    def fetch(job: Any, ctx: Context) -> None:
        ctx.step("one", lambda: 1)
        queue.annotate(ctx.task_id, {"seen": True})
        queue.signal(ctx.task_id, "go", 7)
        ctx.step("two", lambda: 2)

    with working(queue, films):
        task = ended(queue, queue.add(films).task_id)
    assert list(task.steps["fetch"]) == ["one", "two"]
    assert task.metadata == {"seen": True}
    assert [signal["payload"] for signal in task.signals] == [7]


def test_a_holder_that_lost_its_lease_stores_no_further_steps(queue: Queue) -> None:
    films = Pipeline("films")
    here, go = threading.Event(), threading.Event()
    reached: list[str] = []

    @films.phase
    def fetch(job: Any, ctx: Context) -> None:
        here.set()
        go.wait(900)
        ctx.step("late", lambda: "late")
        reached.append("after")

    with working(queue, films):
        task_id = queue.add(films).task_id
        assert here.wait(900)
        (held,) = queue.find(Filter(statuses=frozenset({Status.PROCESSING}))).tasks
        rescued = msgspec.structs.replace(held, rescue_count=Retry().max_rescues)
        queue.store.swap([Move(held, rules.rescue(rescued, queue.store.now()))])
        go.set()
    task = queue.get(task_id)
    assert (task.status, task.steps, reached) == (Status.FAILED, {}, [])


def test_two_steps_with_the_same_name_are_an_error(queue: Queue) -> None:
    films = Pipeline("films")

    @films.phase(retry=0)
    def fetch(job: Any, ctx: Context) -> None:
        ctx.step("one", lambda: 1)
        ctx.step("one", lambda: 2)

    with working(queue, films):
        task = ended(queue, queue.add(films).task_id)
    assert task.status is Status.FAILED
    assert "two steps named 'one'" in (task.error or "")


@pytest.mark.parametrize("result", [float("nan"), 2**70, object()])
def test_a_result_that_cannot_be_stored_fails_the_task_permanently(queue: Queue, result: Any) -> None:
    films = Pipeline("films")

    @films.phase
    def fetch(job: Any, ctx: Context) -> None:
        ctx.step("odd", lambda: result)

    with working(queue, films):
        task = ended(queue, queue.add(films).task_id)
    assert (task.status, task.error_class, task.attempt) == (Status.FAILED, "permanent", 1)


async def download() -> str:
    return "tides"


MISTAKES: dict[str, tuple[Callable[[Context, Any], Any], str]] = {
    "an async function in a def handler": (
        lambda ctx, coroutine: ctx.step("download", lambda: coroutine),
        "step 'download' is a coroutine, which is not a JSON value; make the handler async def, and await the call",
    ),
    "a call": (
        lambda ctx, coroutine: ctx.step("download", 5),  # type: ignore[arg-type]
        "step 'download' needs a function, not its result (int); "
        "give the function and its arguments: ctx.step('download', function, arguments…)",
    ),
    "a call of an async function": (
        lambda ctx, coroutine: ctx.step("download", coroutine),
        "step 'download' needs a function, not its result (coroutine); "
        "in an async def handler: await ctx.step('download', function, arguments…)",
    ),
    "children of a phase": (
        lambda ctx, coroutine: ctx.spawn(download, [1]),  # type: ignore[call-overload]
        "pipeline must be a Pipeline or its name, not 'download'; if 'download' is a phase, give its pipeline",
    ),
    "one payload for all children": (
        lambda ctx, coroutine: ctx.spawn("films", {"title": "a"}),
        "payloads must be a list, not dict; put one payload into a list: [payload]",
    ),
}


@ON_SQLITE
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_handler_is_explained(queue: Queue, mistake: str) -> None:
    call, said = MISTAKES[mistake]
    films = Pipeline("films")
    coroutine = download()

    @films.phase(retry=0)
    def fetch(job: Any, ctx: Context) -> None:
        call(ctx, coroutine)

    with working(queue, films):
        task = ended(queue, queue.add(films).task_id)
    coroutine.close()
    assert (task.error or "").partition(": ")[2] == said


@ON_SQLITE
def test_a_coroutine_as_a_step_of_an_async_handler_is_explained(queue: Queue) -> None:
    films = Pipeline("films")

    @films.phase(retry=0)
    async def fetch(job: Any, ctx: AsyncContext) -> None:
        coroutine = download()
        try:
            await ctx.step("download", coroutine)  # type: ignore[call-overload]
        finally:
            coroutine.close()

    with working(queue, films):
        task = ended(queue, queue.add(films).task_id)
    assert "step 'download' needs a function, not its result (coroutine)" in (task.error or "")


def test_a_replay_clears_the_steps_of_the_repeated_phases(queue: Queue) -> None:
    films = Pipeline("films")

    @films.phase
    def fetch(job: Any, ctx: Context) -> Any:
        return ctx.step("download", lambda: 1)

    @films.phase
    def cut(job: Any, ctx: Context) -> Any:
        return ctx.step("scissors", lambda: 2)

    with working(queue, films):
        task = ended(queue, queue.add(films).task_id)
        assert list(task.steps) == ["fetch", "cut"]
    again = queue.replay(task.task_id, "cut")
    assert list(again.steps) == ["fetch"]
