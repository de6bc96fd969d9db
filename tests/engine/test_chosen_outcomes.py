"""A handler ends its own task as cancelled, skips its phase, or sleeps without a slot; in every runner."""

from datetime import timedelta
from typing import Any

import pytest

from onerow import (
    AsyncContext,
    CancelTask,
    Context,
    Item,
    Pipeline,
    Retry,
    SkipPhase,
    Status,
    Task,
    TaskAdvanced,
    TaskCancelled,
)
from onerow.engine.queue.queue import Queue
from onerow.engine.views import Views
from tests.engine import chosen_app
from tests.engine.conftest import ended, until, working
from tests.engine.kit import history_of

KINDS = ["thread", "async"]
ALONE = ["isolated", "isolated async"]


def run_until_sleeping(queue: Queue, pipeline: Pipeline, task: Task) -> Task:
    with working(queue, pipeline):
        until(lambda: queue.get(task.task_id).history[-1:] and queue.get(task.task_id).history[-1].what == "sleeping")
    return queue.get(task.task_id)


def ends_cancelled(queue: Queue, pipeline: Pipeline, job: str) -> None:
    task = queue.add(pipeline, job)
    with working(queue, pipeline):
        now = ended(queue, task.task_id)
    assert (now.status, now.phase, now.error, now.retry_count) == (Status.CANCELLED, "first", None, 0)
    assert [(entry.what, entry.note) for entry in now.history] == [("cancelled", "the video was deleted")]


def skips(queue: Queue, pipeline: Pipeline) -> None:
    task = queue.add(pipeline, "skip")
    with working(queue, pipeline):
        now = ended(queue, task.task_id)
    assert (now.status, now.results) == (Status.COMPLETED, {"second": ["first was", None]})
    assert [(entry.what, entry.note) for entry in now.history] == [("skipped", "no audio track"), ("completed", "")]


@pytest.mark.parametrize("job", ["cancel", "group"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_handler_cancels_its_own_task_with_a_reason(queue: Queue, kind: str, job: str) -> None:
    ends_cancelled(queue, chosen_app.make(kind), job)


@pytest.mark.parametrize("kind", KINDS)
def test_a_skipped_phase_has_no_result_and_the_next_phase_runs(queue: Queue, kind: str) -> None:
    skips(queue, chosen_app.make(kind))


@pytest.mark.parametrize("kind", ALONE)
def test_an_isolated_handler_cancels_or_skips_too(sqlite_queue: Queue, kind: str) -> None:
    pipeline = chosen_app.make(kind)
    ends_cancelled(sqlite_queue, pipeline, "cancel")
    skips(sqlite_queue, pipeline)


def test_skipping_the_last_phase_completes_the_task(queue: Queue) -> None:
    pipeline = Pipeline("one")

    @pipeline.phase
    def only(job: object) -> None:
        raise SkipPhase

    task = queue.add(pipeline)
    with working(queue, pipeline):
        now = ended(queue, task.task_id)
    assert (now.status, now.result, history_of(now)) == (Status.COMPLETED, None, [("skipped", "only")])


def test_a_choice_in_a_group_with_a_failure_is_a_failure(queue: Queue) -> None:
    pipeline = Pipeline("one")

    @pipeline.phase(retry=Retry(0))
    def only(job: object) -> None:
        raise ExceptionGroup("both", [CancelTask("gone"), ValueError("broken")])

    task = queue.add(pipeline)
    with working(queue, pipeline):
        now = ended(queue, task.task_id)
    assert (now.status, now.error) == (Status.FAILED, "ValueError: broken")


def test_items_of_a_batch_are_cancelled_or_skipped_one_by_one(queue: Queue) -> None:
    posts = Pipeline("posts")

    @posts.batch("embed", size=3, within="10s")
    def embed(items: list[Item[str]]) -> None:
        for item in items:
            if item.payload == "cancel":
                item.cancel("not wanted")
            elif item.payload == "skip":
                item.skip("empty")
            else:
                item.done("vector")

    posts.phase(name="index")(lambda job, embed: embed)
    tasks = queue.add_many(posts, ["cancel", "skip", "go"])
    with working(queue, posts):
        cancelled, skipped, done = [ended(queue, task.task_id) for task in tasks]
    assert (cancelled.status, cancelled.history[-1].note) == (Status.CANCELLED, "not wanted")
    assert (skipped.status, skipped.result, skipped.history[0].note) == (Status.COMPLETED, None, "empty")
    assert done.result == "vector"


def test_a_batch_handler_that_raises_a_choice_settles_all_open_items_with_it(queue: Queue) -> None:
    posts = Pipeline("posts")

    @posts.batch("embed", size=2, within="10s")
    def embed(items: list[Item[str]]) -> None:
        items[0].done()
        raise CancelTask("not wanted")

    tasks = queue.add_many(posts, ["a", "b"])
    with working(queue, posts):
        found = [ended(queue, task.task_id).status for task in tasks]
    assert found == [Status.COMPLETED, Status.CANCELLED]


def test_a_leased_task_is_cancelled_or_skipped_by_its_puller(queue: Queue) -> None:
    pipeline = chosen_app.make("thread")
    queue.add_many(pipeline, ["a", "b"])
    first, second = queue.claim(pipeline, limit=2)
    assert first.cancel("deleted").status is Status.CANCELLED
    assert (first.task.history[-1].what, first.task.history[-1].note) == ("cancelled", "deleted")
    assert (second.skip("empty").phase, second.task.history[-1].note) == ("second", "empty")


def test_events_and_why_give_the_reason(queue: Queue) -> None:
    heard: list[Any] = []
    queue.on(TaskCancelled, lambda event: heard.append((event.task.phase, event.reason)))
    queue.on(TaskAdvanced, lambda event: heard.append((event.phase, event.task.history[-1].what)))
    pipeline = chosen_app.make("thread")
    cancelled, skipped = (queue.add(pipeline, job) for job in ("cancel", "skip"))
    with working(queue, pipeline):
        ended(queue, cancelled.task_id)
        ended(queue, skipped.task_id)
    assert sorted(heard) == [("first", "skipped"), ("first", "the video was deleted")]
    assert "(the video was deleted)" in Views(queue).why(cancelled.task_id).sentence


def test_a_task_that_cancels_itself_cancels_its_children(queue: Queue) -> None:
    pipeline, parts = Pipeline("whole"), Pipeline("parts")
    parts.phase(name="part")(lambda job: None)

    @pipeline.phase
    def only(job: object, ctx: Context) -> None:
        ctx.spawn(parts, [1, 2], delay="1h")
        raise CancelTask("not wanted")

    task = queue.add(pipeline)
    with working(queue, pipeline, parts):
        ended(queue, task.task_id)
        until(lambda: [line.status for line in queue.count()] == [Status.CANCELLED, Status.CANCELLED])


# ── sleeping ──


def sleeps_twice(queue: Queue, kind: str) -> None:
    pipeline = chosen_app.make(kind)
    task = queue.add(pipeline, "sleep")
    first = run_until_sleeping(queue, pipeline, task)
    assert (first.status, first.phase, first.retry_count, first.error) == (Status.WAITING, "first", 0, None)
    assert (first.slot, first.leased_by, first.awaiting) == (None, None, None)
    assert first.run_at - first.updated_at == timedelta(hours=1)
    queue.reschedule(task.task_id, queue.store.now())
    with working(queue, pipeline):
        until(lambda: history_of(queue.get(task.task_id)).count(("sleeping", "first")) == 2)
    second = queue.get(task.task_id)
    assert second.run_at - second.updated_at == timedelta(hours=2)
    queue.reschedule(task.task_id, queue.store.now())
    with working(queue, pipeline):
        now = ended(queue, task.task_id)
    assert (now.status, now.results["first"], now.retry_count) == (Status.COMPLETED, 3, 0)
    assert set(now.steps["first"]) == {"before", "sleep:", "sleep:long"}


@pytest.mark.parametrize("kind", KINDS)
def test_sleeps_hold_no_slot_and_return_at_once_in_the_next_attempt(queue: Queue, kind: str) -> None:
    sleeps_twice(queue, kind)


@pytest.mark.parametrize("kind", ALONE)
def test_an_isolated_handler_sleeps_too(sqlite_queue: Queue, kind: str) -> None:
    sleeps_twice(sqlite_queue, kind)


def test_a_short_sleep_ends_by_itself(queue: Queue) -> None:
    pipeline = Pipeline("short")
    calls: list[int] = []

    @pipeline.phase(concurrency=1)
    async def poll(job: object, ctx: AsyncContext) -> int:
        calls.append(ctx.attempt)
        for _ in range(3):
            await ctx.sleep("20ms")
        return len(calls)

    task = queue.add(pipeline)
    with working(queue, pipeline):
        assert ended(queue, task.task_id).result == 4
    assert history_of(queue.get(task.task_id)) == [("sleeping", "poll")] * 3 + [("completed", "poll")]


def test_a_sleeping_task_is_cancelled_at_once_and_why_says_that_it_sleeps(queue: Queue) -> None:
    pipeline = chosen_app.make("thread")
    task = run_until_sleeping(queue, pipeline, queue.add(pipeline, "sleep"))
    reason = Views(queue).why(task.task_id)
    assert (reason.code, reason.until) == ("sleeping", task.run_at)
    assert reason.sentence.startswith("It is sleeping until ")
    moment = Views(queue).task(task.task_id).timeline[-1]
    assert (moment.what, moment.note[:8]) == ("sleeping", "until 20")
    assert queue.cancel(task.task_id).status is Status.CANCELLED


def test_a_sleep_survives_a_failure_after_it(queue: Queue) -> None:
    pipeline = Pipeline("short")

    @pipeline.phase(retry=Retry(1, wait="1ms"))
    def poll(job: object, ctx: Context) -> int:
        ctx.sleep("1ms")
        if ctx.task.retry_count == 0:
            raise ValueError("once")
        return ctx.attempt

    task = queue.add(pipeline)
    with working(queue, pipeline):
        assert ended(queue, task.task_id).result == 3
