"""Rescue: tasks of a dead worker run again, and a worker that lost its lease changes nothing."""

import asyncio
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from onerow import AsyncContext, Context, Item, Pipeline, Queue, Status, TaskRescued
from onerow.core import rules
from onerow.core.failure import failure
from onerow.core.times import FAR
from onerow.identity import Identity
from onerow.ports import Move, Note, Swapped
from tests.engine.kit import ON_SQLITE, PATIENCE, ended, history_of, reached, texts, until, work, working

STRANGER = "elsewhere-1-abc"


def slow(go: threading.Event | None = None) -> Pipeline:
    pipeline = Pipeline("slow")

    @pipeline.phase(lease="1s")
    def run(job: object) -> str:
        if go is not None:
            go.wait(900)
        return "done"

    return pipeline


def test_a_task_whose_lease_ran_out_runs_again(queue: Queue) -> None:
    pipeline = slow()
    queue.serve(pipeline)
    task = queue.add(pipeline)
    queue.claim(pipeline, lease_for="200ms", worker=STRANGER)
    heard: list[str] = []
    queue.on(TaskRescued, lambda event: heard.append(event.worker))
    with working(queue):
        done = ended(queue, task)
    assert (done.status, done.crash_count, done.retry_count) == (Status.COMPLETED, 0, 0)
    assert [(entry.what, entry.error_class) for entry in done.history] == [("rescued", ""), ("completed", "")]
    assert heard == [STRANGER]


@ON_SQLITE
def test_a_task_with_a_valid_lease_is_not_rescued(queue: Queue) -> None:
    pipeline = slow()
    queue.serve(pipeline)
    task = queue.add(pipeline)
    other = Pipeline("other")
    other.phase(name="run", lease="1s")(lambda job: None)
    (lease,) = queue.claim(pipeline, lease_for="1h", worker=STRANGER)
    with working(queue, other):
        begun = queue.store.now()
        until(lambda: (queue.store.now() - begun).total_seconds() > 3)
        ended(queue, queue.add(other))
    assert queue.get(task.task_id).token == lease.token
    assert lease.complete("mine").status is Status.COMPLETED


def test_a_phase_with_a_long_lease_does_not_delay_the_rescue_of_another(queue: Queue) -> None:
    pipeline = slow()
    pipeline.phase(name="long", lease="7d")(lambda job: None)
    queue.serve(pipeline)
    task = queue.add(pipeline)
    queue.claim(pipeline, lease_for="200ms", worker=STRANGER)
    with working(queue):
        assert ended(queue, task).status is Status.COMPLETED


def test_a_dead_worker_of_this_host_is_noticed_long_before_its_lease_ends(queue: Queue) -> None:
    pipeline = slow()
    queue.serve(pipeline)
    task = queue.add(pipeline)
    queue.claim(pipeline, lease_for="7d", worker=STRANGER)
    me = Identity.of_this_process()
    body = {"boot": me.boot, "namespace": me.namespace, "pid": 2**22 + 1, "born": "1"}
    queue.store.write_notes([Note("worker", STRANGER, body)])
    with working(queue):
        assert ended(queue, task).status is Status.COMPLETED
        until(lambda: STRANGER not in [note.name for note in queue.store.notes("worker")])


@ON_SQLITE
@pytest.mark.parametrize("differs", ["boot", "namespace"])
def test_a_pid_proves_nothing_on_another_host_or_in_another_container(queue: Queue, differs: str) -> None:
    pipeline = slow()
    queue.serve(pipeline)
    task = queue.add(pipeline)
    queue.claim(pipeline, lease_for="1h", worker=STRANGER)
    me = Identity.of_this_process()
    body = {"boot": me.boot, "namespace": me.namespace, "pid": 2**22 + 1, "born": "1"} | {differs: "other"}
    queue.store.write_notes([Note("worker", STRANGER, body)])
    other = Pipeline("other")
    other.phase(name="run")(lambda job: None)
    with working(queue, other):
        for _ in range(3):
            ended(queue, queue.add(other))
        begun = queue.store.now()
        until(lambda: (queue.store.now() - begun).total_seconds() > 2)
    assert queue.get(task.task_id).leased_by == STRANGER


def test_a_task_that_crashed_three_times_ends_failed(queue: Queue) -> None:
    pipeline = slow()
    queue.serve(pipeline)
    task = queue.add(pipeline)
    for _ in range(3):
        (lease,) = queue.claim(pipeline, lease_for="100ms", worker=STRANGER)
        crashed = rules.crash(lease.task, failure("gone", "crash"), queue.store.now())
        queue.store.swap([Move(lease.task, crashed)])
    done = queue.get(task.task_id)
    assert (done.status, done.error_class, done.crash_count) == (Status.FAILED, "crash", 3)
    assert queue.retry(task.task_id).crash_count == 0


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_rescued_task_whose_handler_has_no_importable_name_still_runs(queue: Queue, kind: str) -> None:
    pipeline = Pipeline("closure")
    if kind == "def":

        @pipeline.phase(name="run", lease="1s")
        def run(job: object) -> str:
            return "done"
    else:

        @pipeline.phase(name="run", lease="1s")
        async def run_async(job: object) -> str:
            await asyncio.sleep(0.01)
            return "done"

    queue.serve(pipeline)
    task = queue.add(pipeline)
    queue.claim(pipeline, lease_for="100ms", worker=STRANGER)
    with working(queue):
        done = ended(queue, task)
    assert (done.status, done.results) == (Status.COMPLETED, {"run": "done"}), done.error


def endless(kind: str, begun: threading.Event, **terms: Any) -> Pipeline:
    """Return a phase whose handler has no importable name and never ends by itself."""
    pipeline = Pipeline("endless")

    def on(thing: Any) -> None:
        thing.log("on it")
        begun.set()

    if kind == "def":

        @pipeline.phase(name="run", lease="1s", **terms)
        def run(job: object, ctx: Context) -> None:
            on(ctx)
            while True:
                time.sleep(0.01)
    elif kind == "async def":

        @pipeline.phase(name="run", lease="1s", **terms)
        async def run_async(job: object, ctx: AsyncContext) -> None:
            on(ctx)
            await asyncio.Event().wait()
    elif kind == "batch def":

        @pipeline.batch(name="run", lease="1s", size=2, **terms)
        def run_items(items: list[Item[Any]]) -> None:
            on(items[0])
            while True:
                time.sleep(0.01)
    else:

        @pipeline.batch(name="run", lease="1s", size=2, **terms)
        async def run_items_async(items: list[Item[Any]]) -> None:
            on(items[0])
            await asyncio.Event().wait()

    return pipeline


KINDS = ["def", "async def", "batch def", "batch async def"]


@ON_SQLITE
@pytest.mark.parametrize("kind", KINDS)
def test_a_rescued_task_whose_handler_has_no_name_can_be_cancelled(queue: Queue, kind: str) -> None:
    begun = threading.Event()
    pipeline = endless(kind, begun)
    queue.serve(pipeline)
    task = queue.add(pipeline)
    queue.claim(pipeline, lease_for="100ms", worker=STRANGER)
    with working(queue) as worker:
        assert begun.wait(PATIENCE)
        queue.cancel(task.task_id)
        assert ended(queue, task).status is Status.CANCELLED
        assert worker.exit_code == 0, "nothing was left hanging"
    assert texts(queue, task) == ["on it"]


@ON_SQLITE
@pytest.mark.parametrize("kind", KINDS)
def test_a_rescued_task_whose_handler_has_no_name_times_out(queue: Queue, kind: str) -> None:
    pipeline = endless(kind, threading.Event(), timeout="500ms")
    queue.serve(pipeline)
    task = queue.add(pipeline)
    queue.claim(pipeline, lease_for="100ms", worker=STRANGER)
    with working(queue) as worker:
        done = ended(queue, task)
        assert worker.exit_code == 0, "nothing was left hanging"
    assert (done.status, done.error_class) == (Status.FAILED, "timeout")


def test_a_worker_whose_lease_was_taken_writes_nothing(queue: Queue) -> None:
    go = threading.Event()
    pipeline = slow(go)
    task = queue.add(pipeline)
    with working(queue, pipeline) as worker:
        held = reached(queue, task, Status.PROCESSING)
        until(lambda: rescued_until_later(queue, task.task_id))
        assert queue.get(task.task_id).token > held.token
        go.set()
        until(lambda: not worker._in_flight.attempts)
    after = queue.get(task.task_id)
    assert after.results == {}
    assert "completed" not in [what for what, _ in history_of(after)]


def rescued_until_later(queue: Queue, task_id: str) -> bool:
    """Rescue the task with a far run_at; return False if a heartbeat was written concurrently."""
    before = queue.get(task_id)
    after = replace(rules.rescue(before, queue.store.now()), run_at=FAR)
    return isinstance(queue.store.swap([Move(before, after)])[0], Swapped)


def test_a_rescued_task_with_a_cancel_request_ends_cancelled(queue: Queue) -> None:
    pipeline = slow()
    queue.serve(pipeline)
    task = queue.add(pipeline)
    queue.claim(pipeline, lease_for="200ms", worker=STRANGER)
    queue.cancel(task.task_id)
    with working(queue):
        assert ended(queue, task).status is Status.CANCELLED


def test_a_worker_adds_and_removes_its_registry_entry(queue: Queue, tmp_path: Path) -> None:
    pipeline = slow()
    with working(queue, pipeline) as worker:
        (note,) = queue.store.notes("worker")
        assert note.name == worker.name
        assert note.body["phases"] == [["slow", "run"]]
    assert queue.store.notes("worker") == []
    work(queue)
    assert queue.store.notes("worker") == []


def test_a_worker_that_writes_its_registry_entry_while_it_ends_leaves_none(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, removed = threading.Event(), threading.Event()
    with working(queue, slow()) as worker:
        controls = worker._background.controls
        register, unregister = controls.register, controls.unregister

        def register_late(now: datetime) -> None:
            writing.set()
            removed.wait(1)
            register(now)

        def unregister_and_say() -> None:
            unregister()
            removed.set()

        monkeypatch.setattr(controls, "register", register_late)
        monkeypatch.setattr(controls, "unregister", unregister_and_say)
        controls._register_at = 0.0
        assert writing.wait(PATIENCE)
    assert queue.store.notes("worker") == []
