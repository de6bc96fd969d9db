"""Durable waits inside a handler: the slot is free during the wait, and steps are remembered."""

from datetime import timedelta
from typing import Any

from onerow import AsyncContext, Context, Pipeline, Retry, Status, WaitExpired
from onerow.engine.queue.queue import Queue
from tests.engine.conftest import ended, parked, until, working


def test_a_handler_that_waits_frees_its_slot_and_keeps_its_steps(queue: Queue) -> None:
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
        parked(queue, second, "signal:approved")  # although the concurrency is 1
        queue.signal(first, "approved", {"by": "eve"})
        task = ended(queue, first)
    assert task.result == ["dear ann", {"by": "eve"}]
    assert drafted == ["ann", "bob"]
    assert task.signals == []
    assert [entry.what for entry in task.history] == ["parked", "signal", "completed"]


def test_a_signal_sent_before_the_wait_is_received(queue: Queue) -> None:
    letters = Pipeline("letters")

    @letters.phase
    async def write(job: Any, ctx: AsyncContext) -> Any:
        return await ctx.wait("approved")

    task_id = queue.add(letters).task_id
    queue.signal(task_id, "approved", 1)
    with working(queue, letters):
        task = ended(queue, task_id)
    assert (task.result, task.attempt) == (1, 1)


def test_two_waits_for_one_signal_need_two_signals(queue: Queue) -> None:
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


def test_an_expired_wait_raises_in_the_handler(queue: Queue) -> None:
    letters = Pipeline("letters")

    @letters.phase
    def write(job: Any, ctx: Context) -> Any:
        try:
            return ctx.wait("approved", timeout="100ms")
        except WaitExpired:
            ctx.step("remind", lambda: None)
            return "not approved"

    with working(queue, letters):
        task = ended(queue, queue.add(letters).task_id)
    assert task.result == "not approved"
    assert [entry.what for entry in task.history] == ["parked", "expired", "completed"]


def test_an_expired_wait_that_is_not_caught_fails_the_task_as_a_timeout(queue: Queue) -> None:
    letters = Pipeline("letters")

    @letters.phase
    async def write(job: Any, ctx: AsyncContext) -> Any:
        return await ctx.wait("approved", timeout="100ms")

    with working(queue, letters):
        task = ended(queue, queue.add(letters).task_id)
    assert (task.status, task.error_class) == (Status.FAILED, "timeout")
    assert "no signal 'approved' was received" in (task.error or "")


def test_a_parked_handler_can_be_cancelled(queue: Queue) -> None:
    letters = Pipeline("letters")

    @letters.phase
    def write(job: Any, ctx: Context) -> Any:
        return ctx.wait("approved")

    with working(queue, letters):
        task_id = queue.add(letters).task_id
        parked(queue, task_id, "signal:approved")
        assert queue.cancel(task_id).status is Status.CANCELLED


def test_a_retry_after_an_expired_wait_waits_again_and_takes_an_earlier_signal(queue: Queue) -> None:
    letters = Pipeline("letters")

    @letters.phase
    def write(job: Any, ctx: Context) -> Any:
        return ctx.wait("approved", timeout="100ms" if ctx.task.retry_count == 0 else "1d")

    with working(queue, letters):
        waits, signalled = (ended(queue, queue.add(letters).task_id).task_id for _ in range(2))
        assert queue.retry(waits).status is Status.WAITING
        held = parked(queue, waits, "signal:approved")
        assert held.deadline is not None
        assert held.deadline > held.created_at + timedelta(hours=1)
        queue.signal(waits, "approved", "late")
        assert ended(queue, waits).result == "late"
    queue.retry(signalled)
    queue.signal(signalled, "approved", "early")
    with working(queue, letters):
        task = ended(queue, signalled)
    assert (task.status, task.result) == (Status.COMPLETED, "early")
    assert [entry.what for entry in task.history][-2:] == ["signal", "completed"]


def test_a_signal_between_expiry_and_failure_is_received_by_the_retry(queue: Queue) -> None:
    letters = Pipeline("letters")
    begun = []

    @letters.phase
    def write(job: Any, ctx: Context) -> Any:
        begun.append(ctx.attempt)
        if len(begun) == 2:  # the wait has expired, and the handler does not know it yet
            queue.signal(ctx.task_id, "approved", "in between")
        return ctx.wait("approved", timeout="50ms")

    with working(queue, letters):
        task_id = queue.add(letters).task_id
        assert ended(queue, task_id).error_class == "timeout"
        queue.retry(task_id)
        task = ended(queue, task_id)
    assert (task.status, task.result) == (Status.COMPLETED, "in between")


def test_an_expired_wait_that_the_handler_caught_is_remembered_by_its_retries(queue: Queue) -> None:
    letters = Pipeline("letters")
    remembered = []

    @letters.phase(retry=Retry(1, wait="10ms"))
    def write(job: Any, ctx: Context) -> Any:
        try:
            ctx.wait("approved", timeout="50ms")
        except WaitExpired:
            remembered.append(ctx.attempt)
            if len(remembered) < 3:
                raise ConnectionError("the mail server is away") from None
        return "reminded"

    with working(queue, letters):
        task_id = queue.add(letters).task_id
        assert ended(queue, task_id).status is Status.FAILED
        queue.retry(task_id)
        task = ended(queue, task_id)
    assert (task.status, task.result, len(remembered)) == (Status.COMPLETED, "reminded", 3)
    assert [entry.what for entry in task.history].count("parked") == 1


def test_a_policy_that_retries_timeouts_waits_again(queue: Queue) -> None:
    letters = Pipeline("letters")

    @letters.phase(retry=Retry(3, wait="10ms", classes={"timeout": True}))
    def write(job: Any, ctx: Context) -> Any:
        return ctx.wait("approved", timeout="50ms" if ctx.task.retry_count == 0 else "1d")

    with working(queue, letters):
        task_id = queue.add(letters).task_id
        until(lambda: [entry.what for entry in queue.get(task_id).history].count("parked") == 2, "a second wait")
        queue.signal(task_id, "approved", 1)
        assert ended(queue, task_id).result == 1


def test_a_retry_of_a_manually_failed_task_gives_its_wait_a_new_deadline(queue: Queue) -> None:
    letters = Pipeline("letters")

    @letters.phase
    def write(job: Any, ctx: Context) -> Any:
        return ctx.wait("approved", timeout="1h" if ctx.task.retry_count == 0 else "2d")

    with working(queue, letters):
        task_id = queue.add(letters).task_id
        parked(queue, task_id, "signal:approved")
        queue.fail(task_id, "not needed")
        queue.retry(task_id)
        held = parked(queue, task_id, "signal:approved")
        assert held.deadline is not None
        assert held.deadline > held.created_at + timedelta(days=1)


def test_a_retry_of_an_expired_wait_phase_waits_again(queue: Queue) -> None:
    letters = Pipeline("letters")
    letters.wait_for("approval", signal="approved", timeout="50ms")
    with working(queue, letters):
        task_id = queue.add(letters).task_id
        assert ended(queue, task_id).error_class == "timeout"
    task = queue.retry(task_id)
    assert task.awaiting == "signal:approved"
    queue.signal(task_id, "approved", "yes")
    with working(queue, letters):
        task = ended(queue, task_id)
    assert (task.status, task.result) == (Status.COMPLETED, "yes")
