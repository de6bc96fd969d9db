"""SIGKILL and SIGSTOP on real workers: no task is lost, and none ends twice."""

import os
import signal
import time

import pytest

from onerow import Status, Task
from tests.engine.kit import until
from tests.faults import app
from tests.faults.kit import Place, check_story, freeze, gone

pytestmark = [pytest.mark.faults, pytest.mark.promise("P1", "P3")]

PHASES = ("in_loop", "in_thread", "in_process")
KINDS = {"async": "in_loop", "thread": "in_thread", "isolated": "in_process"}


def running(place: Place, kind: str) -> Task:
    """Add a task that sleeps in a handler of this kind, and wait until it runs."""
    task = place.queue.add(app.slow, {"kind": kind})
    until(lambda: at_work(place, task, kind), f"{kind} at work")
    return task


def at_work(place: Place, task: Task, kind: str) -> bool:
    now = place.queue.get(task.task_id)
    begun = [words for words in place.notes("begin") if task.task_id in words]
    return now.phase == KINDS[kind] and now.status is Status.PROCESSING and len(begun) == 1 + list(KINDS).index(kind)


@pytest.mark.parametrize("kind", ["async", pytest.param("thread", marks=pytest.mark.slow), "isolated"])
def test_a_task_whose_worker_process_was_killed_runs_again_and_completes(place: Place, kind: str) -> None:
    worker = place.worker()
    task = running(place, kind)
    place_of_work = int(place.notes("begin")[-1][1])
    worker.kill("worker")
    done = place.ended(task)
    assert (done.status, done.retry_count) == (Status.COMPLETED, 0), done.error
    check_story(done, PHASES)
    assert done.crash_count == 0
    rescued = [entry.phase for entry in done.history if entry.what not in ("advanced", "completed")]
    assert rescued[0] == KINDS[kind]
    # A machine that gets no processor time for seconds may lose the next lease too.
    assert [entry.phase for entry in done.history if entry.what == "rescued"] == rescued
    until(lambda: gone(place_of_work), "the end of the old work")


@pytest.mark.parametrize("first", ["supervisor", pytest.param("worker", marks=pytest.mark.slow)])
def test_a_task_survives_the_death_of_worker_and_supervisor(place: Place, first: str) -> None:
    worker = place.worker()
    task = running(place, "isolated")
    worker.kill(first, "worker" if first == "supervisor" else "supervisor")
    until(lambda: not place.living(), "the end of everything that the worker started")
    held = place.queue.get(task.task_id)
    assert held.status is Status.PROCESSING
    check_story(held, PHASES)
    place.worker()
    done = place.ended(task)
    assert done.status is Status.COMPLETED
    check_story(done, PHASES)


def test_when_the_supervisor_dies_its_worker_drains_and_exits(place: Place) -> None:
    worker = place.worker("--grace", "30s")
    task = place.queue.add(app.slow, {"kind": "thread", "for": 1})
    until(lambda: at_work(place, task, "thread"))
    worker.kill("supervisor")
    until(lambda: not place.living(), "the end of the orphaned worker")
    now = place.queue.get(task.task_id)
    assert now.status in (Status.WAITING, Status.COMPLETED)
    assert now.crash_count == 0
    assert "in_thread" in now.results
    place.worker()
    check_story(place.ended(task), PHASES)


def test_without_a_supervisor_the_task_is_rescued_by_another_worker(place: Place) -> None:
    worker = place.worker()
    task = running(place, "async")
    place.worker()
    worker.kill("supervisor", "worker")
    done = place.ended(task)
    assert done.status is Status.COMPLETED
    check_story(done, PHASES)


@pytest.mark.parametrize("kind", ["async", pytest.param("thread", marks=pytest.mark.slow)])
def test_a_worker_stopped_past_its_lease_changes_nothing_when_it_continues(place: Place, kind: str) -> None:
    stale = place.worker("--phases", KINDS[kind])
    task = place.queue.add(app.slow, {"kind": kind})
    while place.queue.get(task.task_id).phase != KINDS[kind]:
        place.queue.finish(task.task_id, phase_only=True)
    place.begun(task)
    first = place.queue.get(task.task_id)
    process = stale.pid()
    stale.supervisor.send_signal(signal.SIGSTOP)  # it would kill and replace a worker that is silent
    freeze(place, process)
    try:
        place.worker()
        done = place.ended(task)
        assert done.token > first.token
    finally:
        os.kill(process, signal.SIGCONT)
        stale.supervisor.send_signal(signal.SIGCONT)
    until(lambda: "lost its lease" in place.output(), "the stale holder's insight")
    assert place.queue.get(task.task_id) == done
    assert [entry.phase for entry in done.history if entry.what == "completed"] == ["in_process"]


def test_a_stopped_worker_that_finishes_as_soon_as_it_continues_changes_nothing(place: Place) -> None:
    stale = place.worker("--phases", "in_loop")
    task = place.queue.add(app.slow, {"kind": "async", "for": 4})
    place.begun(task)
    process = stale.pid()
    stale.supervisor.send_signal(signal.SIGSTOP)  # it would kill and replace a worker that is silent
    freeze(place, process)
    try:
        begun = time.monotonic()
        place.worker()
        done = place.ended(task)
        # The sleep is over by then, so that the handler returns at once.
        until(lambda: time.monotonic() - begun > 5)
    finally:
        os.kill(process, signal.SIGCONT)
        stale.supervisor.send_signal(signal.SIGCONT)
    until(lambda: "lost its lease" in place.output(), "the stale holder's insight")
    assert place.queue.get(task.task_id) == done
    check_story(done, PHASES)
