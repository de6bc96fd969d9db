"""Output of a task is masked before it is stored, and kept while the store is unavailable."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from onerow import AsyncContext, Context, Pipeline, Queue, RateLimited, Retry, Status, StoreUnavailable
from onerow.engine.queue import task_log
from onerow.ports import LogLine
from tests.engine.kit import ON_SQLITE, ended, texts, until, working

SECRET = "hunter2-and-more"


# ── secrets ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STUDIO_PASSWORD", SECRET)


def report(job: Any, ctx: Context) -> None:
    """Progress with a secret; the task ends only when it is cancelled."""
    ctx.progress(1, 2, note=f"logged in with {SECRET}")
    while True:
        ctx.check()
        threading.Event().wait(0.02)


def row_of(queue: Queue, task_id: str) -> str:
    return repr(msgspec.to_builtins(queue.get(task_id)))


@ON_SQLITE
@pytest.mark.parametrize("runner", ["thread", "isolated"])
def test_progress_is_masked_before_it_is_stored(queue: Queue, runner: str) -> None:
    pipeline = Pipeline("masked")
    pipeline.phase(timeout="5m", isolate="process" if runner == "isolated" else None)(report)
    task = queue.add(pipeline)
    with working(queue, pipeline):
        until(lambda: queue.get(task.task_id).progress)
        found = queue.get(task.task_id)
        row = row_of(queue, task.task_id)
        queue.cancel(task.task_id)
        ended(queue, task)
    assert found.progress["note"] == "logged in with ***"
    assert SECRET not in row


def test_progress_of_an_async_handler_is_masked_before_it_is_stored(queue: Queue) -> None:
    pipeline = Pipeline("masked")
    stored = threading.Event()

    @pipeline.phase
    async def run(job: Any, ctx: AsyncContext) -> None:
        ctx.progress(1, 2, note=f"password={SECRET}")
        while not stored.is_set():
            await asyncio.sleep(0.02)

    task = queue.add(pipeline)
    with working(queue, pipeline):
        until(lambda: queue.get(task.task_id).progress)
        row = row_of(queue, task.task_id)
        stored.set()
        ended(queue, task)
    assert SECRET not in row
    assert "***" in row


@pytest.mark.parametrize("error", [f"no login with {SECRET}", ValueError(f"no login with {SECRET}")])
@pytest.mark.parametrize("retry", [True, False])
def test_the_error_of_code_that_pulls_is_masked_before_it_is_stored(
    queue: Queue, error: str | BaseException, retry: bool
) -> None:
    pipeline = Pipeline("pulled")
    pipeline.phase(name="run", retry=Retry(3))(lambda job: None)
    queue.serve(pipeline)
    task = queue.add(pipeline)
    (lease,) = queue.claim(pipeline, "run")
    failed = lease.fail(error, retry=retry)
    assert failed.status is (Status.WAITING if retry else Status.FAILED)
    assert "no login with ***" in (queue.get(task.task_id).error or "")
    assert SECRET not in row_of(queue, task.task_id)


def test_the_reason_for_which_code_that_pulls_holds_a_phase_is_masked(queue: Queue) -> None:
    pipeline = Pipeline("pulled")
    pipeline.phase(name="run")(lambda job: None)
    queue.serve(pipeline)
    task = queue.add(pipeline)
    (lease,) = queue.claim(pipeline, "run")
    lease.fail(RateLimited("1m", f"quota of {SECRET}", scope="phase"))
    assert SECRET not in row_of(queue, task.task_id)
    notes = repr([note for kind in ("hold", "pause", "limit") for note in queue.store.notes(kind)])
    assert "quota of ***" in notes
    assert SECRET not in notes


# ── outages ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Outage:
    """Makes a store refuse lines of the task log, as if it were unavailable, until the outage is over."""

    def __init__(self, queue: Queue) -> None:
        self._append = queue.store.append_log
        self.refused = 0
        self.lasts = False
        queue.store.append_log = self._append_or_refuse  # type: ignore[method-assign]

    def _append_or_refuse(self, lines: Sequence[LogLine]) -> None:
        if self.lasts:
            self.refused += 1
            raise StoreUnavailable("connection refused")
        self._append(lines)


def test_lines_written_while_the_store_is_unavailable_are_stored_after_it_in_order(queue: Queue) -> None:
    outage = Outage(queue)
    pipeline = Pipeline("talks")
    over, written = threading.Event(), threading.Event()

    @pipeline.phase(lease="60s")
    def run(job: Any, ctx: Context) -> None:
        for number in range(100):
            ctx.log(f"before {number}")
        until(lambda: len(texts(queue, task)) == 100)
        outage.lasts = True
        for number in range(700):
            ctx.log(f"during {number}")
            if number == 300:
                until(lambda: outage.refused >= 2)
        written.set()
        over.wait(900)
        ctx.log("after")

    task = queue.add(pipeline)
    with working(queue, pipeline):
        assert written.wait(900)
        over.set()
        refused = outage.refused
        until(lambda: outage.refused >= refused + 2)
        assert queue.get(task.task_id).status is Status.PROCESSING  # its outcome waits until its lines are stored
        outage.lasts = False
        ended(queue, task)
        expected = [*(f"before {n}" for n in range(100)), *(f"during {n}" for n in range(700)), "after"]
        assert texts(queue, task) == expected


def test_after_an_outage_the_last_lines_within_the_bound_are_stored_and_the_log_says_how_many_were_dropped(
    queue: Queue,
) -> None:
    outage = Outage(queue)
    outage.lasts = True
    pipeline = Pipeline("talks")
    count = 15_000

    @pipeline.phase(lease="60s")
    def run(job: Any, ctx: Context) -> None:
        for number in range(count):
            ctx.log(f"line {number}")
        until(lambda: outage.refused >= 2)
        outage.lasts = False

    task = queue.add(pipeline)
    with working(queue, pipeline):
        ended(queue, task)
    found = [line.text for line in task_log.read(queue, task.task_id) if isinstance(line, LogLine)]
    numbers = [int(text.removeprefix("line ")) for text in found if text.startswith("line ")]
    assert numbers[-1] == count - 1
    assert numbers == sorted(set(numbers))
    assert 5_000 <= len(numbers) <= 12_000
    assert any("left out" in text for text in found)
