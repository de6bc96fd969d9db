"""Durable waits inside a handler: the slot is free meanwhile, and the steps are remembered."""

from typing import Any

from onerow import Context, Pipeline, Status, WaitExpired
from onerow.engine.queue import Queue
from tests.engine.conftest import ended, parked, working


def test_a_handler_that_waits_frees_its_slot_and_comes_back_with_its_steps(queue: Queue) -> None:
    letters = Pipeline("letters")
    drafted: list[str] = []

    def draft(name: str) -> str:
        drafted.append(name)
        return f"dear {name}"

    @letters.phase(concurrency=1)
    def write(job: Any, ctx: Context) -> Any:
        text = ctx.step("draft", draft, job)
        answer = ctx.wait("approved", timeout="2d")
        return [text, answer]

    with working(queue, letters):
        first, second = (queue.add(letters, name).task_id for name in ("ann", "bob"))
        held = parked(queue, first, "signal:approved")
        assert (held.status, held.slot, held.leased_by) == (Status.WAITING, None, None)
        assert held.deadline is not None
        parked(queue, second, "signal:approved")  # with room for one at once
        queue.signal(first, "approved", {"by": "eve"})
        task = ended(queue, first)
    assert task.result == ["dear ann", {"by": "eve"}]
    assert drafted == ["ann", "bob"]
    assert task.signals == []
    assert [entry.what for entry in task.history] == ["parked", "signal", "completed"]


def test_a_signal_that_came_early_counts(queue: Queue) -> None:
    letters = Pipeline("letters")

    @letters.phase
    async def write(job: Any, ctx: Context) -> Any:
        return await ctx.wait("approved")

    task_id = queue.add(letters).task_id
    queue.signal(task_id, "approved", 1)
    with working(queue, letters):
        task = ended(queue, task_id)
    assert (task.result, task.attempt) == (1, 1)


def test_waiting_twice_for_one_signal_takes_two(queue: Queue) -> None:
    letters = Pipeline("letters")

    @letters.phase
    def write(job: Any, ctx: Context) -> Any:
        return [ctx.wait("page"), ctx.wait("page")]

    with working(queue, letters):
        task_id = queue.add(letters).task_id
        parked(queue, task_id, "signal:page")
        queue.signal(task_id, "page", "one")
        queue.signal(task_id, "page", "two")
        task = ended(queue, task_id)
    assert task.result == ["one", "two"]


def test_a_wait_that_nobody_ends_is_told_to_the_handler(queue: Queue) -> None:
    letters = Pipeline("letters")

    @letters.phase
    def write(job: Any, ctx: Context) -> Any:
        try:
            return ctx.wait("approved", timeout="100ms")
        except WaitExpired:
            ctx.step("remind", lambda: None)
            return "nobody"

    with working(queue, letters):
        task = ended(queue, queue.add(letters).task_id)
    assert task.result == "nobody"
    assert [entry.what for entry in task.history] == ["parked", "expired", "completed"]


def test_a_wait_that_nobody_ends_or_catches_fails_the_task_as_a_timeout(queue: Queue) -> None:
    letters = Pipeline("letters")

    @letters.phase
    async def write(job: Any, ctx: Context) -> Any:
        return await ctx.wait("approved", timeout="100ms")

    with working(queue, letters):
        task = ended(queue, queue.add(letters).task_id)
    assert (task.status, task.error_class) == (Status.FAILED, "timeout")
    assert "nobody signalled 'approved'" in (task.error or "")


def test_a_parked_handler_can_be_cancelled(queue: Queue) -> None:
    letters = Pipeline("letters")

    @letters.phase
    def write(job: Any, ctx: Context) -> Any:
        return ctx.wait("approved")

    with working(queue, letters):
        task_id = queue.add(letters).task_id
        parked(queue, task_id, "signal:approved")
        assert queue.cancel(task_id).status is Status.CANCELLED
