"""Output of a handler: progress, log lines, prints; and the values of its context."""

import asyncio
import logging
import sys
import threading
from typing import Any

import pytest

from onerow import AsyncContext, Context, Pipeline, Queue, Retry, Status
from tests.engine.kit import ON_SQLITE, ended, finish_all, texts, until, work, working
from tests.engine.worker import isolated_app


def test_prints_and_records_go_to_the_log_of_their_own_task(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline = Pipeline("talking")
    barrier = threading.Barrier(3, timeout=900)

    @pipeline.phase
    def speak(job: int) -> None:
        barrier.wait()
        print(f"out {job} 조수")
        print(f"err {job}", file=sys.stderr)
        logging.getLogger("studio").warning("record %s", job)
        sys.stdout.write("half ")
        sys.stdout.write("a line\nno end")

    @pipeline.phase
    async def whisper(job: int) -> None:
        print(f"async {job}")
        await asyncio.sleep(0.01)
        print(f"again {job}")

    tasks = queue.add_many(pipeline, range(3))
    work(queue, pipeline)
    for number, task in enumerate(tasks):
        lines = queue.logs(task.task_id).lines
        assert {(line.level, line.text) for line in lines} == {
            ("out", f"out {number} 조수"),
            ("err", f"err {number}"),
            ("warning", f"record {number}"),
            ("out", "half a line"),
            ("out", "no end"),
            ("out", f"async {number}"),
            ("out", f"again {number}"),
        }
        assert {line.phase for line in lines} == {"speak", "whisper"}
        assert {line.attempt for line in lines} == {1}
    assert "out 0" not in capsys.readouterr().out


def test_prints_outside_handlers_are_not_captured(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline = Pipeline("quiet")
    pipeline.phase(name="run")(lambda job: None)
    before = sys.stdout
    with working(queue, pipeline):
        ended(queue, queue.add(pipeline))
        print("mine")
    assert "mine" in capsys.readouterr().out
    assert sys.stdout is before


def test_ctx_log_adds_lines_with_a_level_and_an_attempt(queue: Queue) -> None:
    pipeline = Pipeline("talking")

    @pipeline.phase(retry=Retry(1, wait="1ms"))
    def run(job: object, ctx: Context) -> None:
        ctx.log(f"attempt {ctx.attempt}")
        ctx.log("two\nlines", level="warning")
        if ctx.attempt == 1:
            raise ValueError

    task = queue.add(pipeline)
    finish_all(queue, pipeline)
    lines = [(line.attempt, line.level, line.text) for line in queue.logs(task.task_id).lines if line.level != "error"]
    assert lines == [
        (1, "info", "attempt 1"), (1, "warning", "two"), (1, "warning", "lines"),
        (2, "info", "attempt 2"), (2, "warning", "two"), (2, "warning", "lines"),
    ]  # fmt: skip


def test_lines_that_cannot_be_stored_or_are_too_long_are_made_storable(queue: Queue) -> None:
    pipeline = Pipeline("talking")

    @pipeline.phase
    def run(job: object, ctx: Context) -> None:
        ctx.log("nul \x00 surrogate \ud800")
        ctx.log("x" * 100_000)

    task = queue.add(pipeline)
    work(queue, pipeline)
    first, *long = texts(queue, task)
    assert first.startswith("nul ")
    assert max(map(len, long)) <= 16_000
    assert "".join(long) == "x" * 100_000


def test_of_very_many_lines_the_last_are_kept_and_the_log_says_how_many_were_dropped(queue: Queue) -> None:
    pipeline = Pipeline("talking")

    @pipeline.phase
    def run(job: object) -> None:
        for number in range(12_000):
            print(number)

    task = queue.add(pipeline)
    work(queue, pipeline)
    page = queue.logs(task.task_id, tail=10)
    assert [line.text for line in page.lines] == [str(number) for number in range(11_990, 12_000)]
    assert page.dropped >= 2_000


def test_progress_is_in_the_row_while_the_task_runs(queue: Queue) -> None:
    pipeline = Pipeline("working")
    go = threading.Event()

    @pipeline.phase
    def run(job: object, ctx: Context) -> None:
        ctx.progress(3, 10, "frames")
        go.wait(900)
        ctx.progress(10, 10)

    task = queue.add(pipeline)
    with working(queue, pipeline):
        until(lambda: queue.get(task.task_id).progress)
        assert queue.get(task.task_id).progress == {"done": 3, "total": 10, "note": "frames"}
        assert queue.get(task.task_id).status is Status.PROCESSING
        go.set()
        assert ended(queue, task).status is Status.COMPLETED


def test_track_yields_the_items_and_reports_progress(queue: Queue) -> None:
    pipeline = Pipeline("working")
    go = threading.Event()

    @pipeline.phase
    def run(job: object, ctx: Context) -> list[int]:
        seen = []
        for number in ctx.track(range(5), note="clips"):
            seen.append(number)
            if number == 3:
                go.wait(900)
        assert list(ctx.track(iter("ab"), total=2)) == ["a", "b"]
        return seen

    task = queue.add(pipeline)
    with working(queue, pipeline):
        until(lambda: queue.get(task.task_id).progress == {"done": 3, "total": 5, "note": "clips"})
        go.set()
        assert ended(queue, task).results == {"run": [0, 1, 2, 3, 4]}


def test_the_context_has_the_values_of_its_attempt(queue: Queue) -> None:
    pipeline = Pipeline("telling")

    def tell(ctx: Context | AsyncContext) -> list[Any]:
        return [
            ctx.task_id,
            ctx.user_id,
            ctx.phase,
            ctx.attempt,
            ctx.token,
            ctx.idempotency_key,
            ctx.metadata,
            ctx.cancelled,
        ]

    @pipeline.phase
    def one(job: object, ctx: Context) -> list[Any]:
        return tell(ctx)

    @pipeline.phase
    async def two(job: object, *, ctx: AsyncContext) -> list[Any]:
        ctx.check()
        return tell(ctx)

    task = queue.add(pipeline, user_id="u1", metadata={"m": 1})
    work(queue, pipeline)
    done = queue.get(task.task_id)
    assert done.results["one"] == [task.task_id, "u1", "one", 1, 1, f"{task.task_id}:one:0", {"m": 1}, False]
    assert done.results["two"] == [task.task_id, "u1", "two", 1, 2, f"{task.task_id}:two:0", {"m": 1}, False]


def test_the_idempotency_key_is_the_same_for_every_attempt_and_another_after_a_replay(queue: Queue) -> None:
    pipeline = Pipeline("keyed")
    keys: list[str] = []

    @pipeline.phase(retry=Retry(2, wait="1ms"))
    def run(job: object, ctx: Context) -> None:
        keys.append(ctx.idempotency_key)
        if ctx.attempt < 3:
            raise ValueError

    task = queue.add(pipeline)
    finish_all(queue, pipeline)
    assert len(keys) == 3
    assert len(set(keys)) == 1
    queue.replay(task.task_id)
    finish_all(queue)
    assert len(set(keys)) == 2


@ON_SQLITE
def test_isolated_handlers_log_and_report_progress_too(queue: Queue) -> None:
    pipeline = isolated_app.make()
    task = queue.add(pipeline, {"do": "speak"})
    work(queue, pipeline)
    lines = {(line.level, line.text) for line in queue.logs(task.task_id).lines}
    assert {
        ("out", "출력 on stdout"), ("err", "on stderr"), ("out", "from below"), ("warning", "a note"),
        ("out", "no end of line"),
    } <= lines  # fmt: skip
    assert any("a record" in text for _, text in lines)


def test_the_last_progress_of_a_short_attempt_is_stored(queue: Queue) -> None:
    pipeline = Pipeline("short")

    @pipeline.phase(retry=Retry(0))
    def count(job: str, ctx: Context) -> None:
        for number in range(3):
            ctx.progress(number + 1, 3)
        if job == "fail":
            raise ValueError("at the end")

    tasks = queue.add_many(pipeline, ["complete", "fail"])
    finish_all(queue, pipeline)
    found = [queue.get(task.task_id) for task in tasks]
    assert [task.status for task in found] == [Status.COMPLETED, Status.FAILED]
    assert [task.progress["done"] for task in found] == [3, 3]


def test_the_progress_of_a_phase_ends_with_the_phase(queue: Queue) -> None:
    pipeline = Pipeline("short")

    @pipeline.phase
    def first(job: object, ctx: Context) -> None:
        ctx.progress(1)

    pipeline.phase(name="second")(lambda job: None)
    task = queue.add(pipeline)
    finish_all(queue, pipeline)
    assert queue.get(task.task_id).progress is None


def test_two_workers_in_one_process_capture_once_and_may_stop_in_any_order(queue: Queue) -> None:
    pipeline = Pipeline("talking")

    @pipeline.phase
    def speak(job: object) -> None:
        print("once")
        logging.getLogger("studio").warning("record")

    before, handlers = sys.stdout, list(logging.getLogger().handlers)
    first, second = working(queue, pipeline), working(queue, pipeline)
    first.__enter__()
    second.__enter__()
    one = ended(queue, queue.add(pipeline))
    first.__exit__(None, None, None)
    two = ended(queue, queue.add(pipeline))
    second.__exit__(None, None, None)
    assert [texts(queue, task) for task in (one, two)] == [["once", "record"]] * 2
    assert sys.stdout is before
    assert logging.getLogger().handlers == handlers
