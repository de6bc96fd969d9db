"""Slow and hanging hooks and alert receivers: they delay no task, no other hook and no stop of the worker."""

import threading
import time
from collections.abc import Sequence

import pytest

from onerow import Permanent, Pipeline, Queue, TaskAdded, TaskCompleted, TaskFailed, Worker
from onerow.engine.control.alerts import Alert
from onerow.engine.events.events import AlertLost, HookEventsDropped, HookOverdue
from onerow.engine.events.hooks import MOST_QUEUED, HookThread
from onerow.engine.views import Views
from tests.engine.kit import ON_SQLITE, PATIENCE, ended, until, working


def posts() -> Pipeline:
    pipeline = Pipeline("posts")

    @pipeline.phase
    def tag(job: dict[str, str]) -> None:
        if job["name"] == "bad":
            raise Permanent("no such post")

    return pipeline


@ON_SQLITE
def test_a_hook_that_hangs_delays_no_task_and_no_other_hook_and_is_reported(queue: Queue) -> None:
    release = threading.Event()
    seen: list[str] = []
    overdue: list[HookOverdue] = []
    called: list[str] = []

    def hangs(event: TaskCompleted) -> None:
        called.append(event.task.task_id)
        release.wait()

    queue.on(TaskCompleted, hangs, timeout="100ms")
    queue.on(TaskCompleted, lambda event: seen.append(event.task.task_id))
    queue.on(HookOverdue, overdue.append)
    pipeline = posts()
    try:
        with working(queue, pipeline):
            first = ended(queue, queue.add(pipeline, {"name": "a"}).task_id)
            until(lambda: overdue)
            rest = [ended(queue, queue.add(pipeline, {"name": "b"}).task_id).task_id for _ in range(3)]
            until(lambda: set(seen) == {first.task_id, *rest})
            until(lambda: findings(queue, "bad"), "a finding of doctor")
            (finding,) = findings(queue, "bad")
    finally:
        release.set()
    assert called == [first.task_id]
    assert "test_slow_hooks.test_a_hook_that_hangs" in overdue[0].hook
    assert "has not returned for" in finding
    assert "hangs" in finding


def findings(queue: Queue, level: str) -> list[str]:
    """Return doctor's findings about hooks."""
    return [each.what for each in Views(queue).findings() if each.level == level and "hook" in each.what]


@ON_SQLITE
def test_a_hook_that_returns_late_is_called_again_and_what_it_missed_is_counted(queue: Queue) -> None:
    release = threading.Event()
    called: list[str] = []
    dropped: list[HookEventsDropped] = []
    overdue: list[HookOverdue] = []

    def slow(event: TaskCompleted) -> None:
        called.append(event.task.payload["name"])
        if event.task.payload["name"] == "first":
            release.wait()

    queue.on(TaskCompleted, slow, timeout="50ms")
    queue.on(HookOverdue, overdue.append)
    queue.on(HookEventsDropped, dropped.append)
    pipeline = posts()
    with working(queue, pipeline):
        ended(queue, queue.add(pipeline, {"name": "first"}).task_id)
        until(lambda: overdue)
        for _ in range(3):
            ended(queue, queue.add(pipeline, {"name": "missed"}).task_id)
        until(lambda: dropped)
        release.set()
        until(lambda: not queue.events.report_hooks() or not queue.events.report_hooks()[0].running_for)
        ended(queue, queue.add(pipeline, {"name": "last"}).task_id)
        until(lambda: "last" in called)
    assert called == ["first", "last"]
    assert sum(each.count for each in dropped) == 3


def test_events_that_a_hook_cannot_keep_up_with_are_dropped_and_counted() -> None:
    release = threading.Event()
    hook = HookThread(lambda event: release.wait(), "slow", 60.0, "slow", lambda event, error: None)
    for number in range(MOST_QUEUED + 11):
        hook.put(number)
    until(lambda: hook.guard.calling)
    assert hook.guard.dropped in (10, 11)  # 10 if the thread has already taken one event from the queue
    release.set()
    hook.finish(time.monotonic() + PATIENCE)
    assert not hook.guard.calling


@ON_SQLITE
def test_the_last_events_of_a_worker_reach_its_hooks_before_it_ends(queue: Queue) -> None:
    seen: list[str] = []
    queue.on(TaskCompleted, lambda event: seen.append(event.task.task_id))
    pipeline = posts()
    tasks = queue.add_many(pipeline, [{"name": "a"}] * 50)
    assert Worker(queue, [pipeline], until_idle=True).run() == 0
    assert sorted(seen) == sorted(task.task_id for task in tasks)


def test_a_hook_in_a_program_without_a_worker_is_called_before_the_operation_returns(queue: Queue) -> None:
    threads: list[str] = []
    queue.on(TaskAdded, lambda event: threads.append(threading.current_thread().name))
    queue.add(posts(), {"name": "a"})
    assert threads == [threading.current_thread().name]


@ON_SQLITE
def test_neither_a_hook_nor_a_receiver_of_alerts_that_hangs_delays_a_stop(queue: Queue) -> None:
    release = threading.Event()
    lost: list[AlertLost] = []
    sending = threading.Event()

    def hangs(alerts: Sequence[Alert]) -> None:
        sending.set()
        release.wait()

    queue.alert(hangs, unserved_for=None)
    queue.alert(hangs, unserved_for=None)
    queue.on(TaskFailed, lambda event: release.wait())
    queue.on(AlertLost, lost.append)
    pipeline = posts()
    worker = Worker(queue, [pipeline], interval=0.2)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    try:
        ended(queue, queue.add(pipeline, {"name": "bad"}).task_id)
        assert sending.wait(PATIENCE)
        worker.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()
    finally:
        release.set()
    assert [event.count for event in lost] == [1, 1]


@ON_SQLITE
def test_a_receiver_of_alerts_that_hangs_is_reported(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onerow.engine.worker.roles.alert_sender._SEND_LIMIT", 0.1)
    release = threading.Event()
    overdue: list[HookOverdue] = []

    def hangs(alerts: Sequence[Alert]) -> None:
        release.wait()

    queue.alert(hangs, unserved_for=None)
    queue.on(HookOverdue, overdue.append)
    pipeline = posts()
    try:
        with working(queue, pipeline):
            ended(queue, queue.add(pipeline, {"name": "bad"}).task_id)
            until(lambda: overdue)
            until(lambda: findings(queue, "bad"), "a finding of doctor")
    finally:
        release.set()
    assert overdue[0].hook.endswith("(alerts)")
