"""Processes that are started before an isolated attempt needs them."""

import os
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from onerow import BadInput, Queue, Status, Task, Worker
from onerow.engine.processes import ProcessHost
from onerow.engine.runners import prestarted
from onerow.engine.runners.prestarted import HandlerProcess, PrestartedProcesses
from tests.engine.kit import ON_SQLITE, ended, texts, until, working
from tests.engine.worker import prestarted_app

HANDLER = "tests.engine.worker.prestarted_app:tell"


def pool_of(worker: Worker) -> PrestartedProcesses:
    return worker._runners.prestarted


def run(queue: Queue, **payload: Any) -> Task:
    done = ended(queue, queue.add(prestarted_app.make(), payload))
    assert done.status is Status.COMPLETED, done.error
    return done


def make_ready(queue: Queue, worker: Worker) -> int:
    """Run a first attempt; return the pid of the process that then waits for the next."""
    run(queue)
    until(lambda: pool_of(worker).ready, "a ready process")
    [process] = pool_of(worker)._idle
    return process.child.pid


def imported_at(task: Task) -> datetime:
    return datetime.fromisoformat(task.results["tell"]["imported_at"])


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@ON_SQLITE
def test_an_attempt_runs_in_a_process_that_was_started_before_its_task_was_added(queue: Queue) -> None:
    with working(queue, prestarted_app.make()) as worker:
        first = make_ready(queue, worker)
        task = run(queue)
        assert task.results["tell"]["pid"] == first
        assert imported_at(task) < task.created_at
        until(lambda: pool_of(worker).ready, "its replacement")
        second = run(queue)
        assert second.results["tell"]["pid"] != first  # one attempt for each process
        assert imported_at(second) < second.created_at
    assert "importing" in texts(queue, task)  # output of the import belongs to the attempt


@ON_SQLITE
def test_a_worker_starts_no_process_before_the_first_isolated_attempt_and_keeps_none_after_its_end(
    queue: Queue,
) -> None:
    with working(queue, prestarted_app.make()) as worker:
        assert pool_of(worker)._idle == []
        pid = make_ready(queue, worker)
    assert not alive(pid)


@ON_SQLITE
def test_prestarting_can_be_switched_off(queue: Queue) -> None:
    with working(queue, prestarted_app.make(), prestart=0) as worker:
        task = run(queue)
        assert imported_at(task) > task.created_at
        run(queue)
        assert pool_of(worker)._idle == []


@pytest.mark.parametrize("prestart", [-1, 257, 1.5, True])
def test_a_wrong_number_of_prestarted_processes_is_refused(queue: Queue, prestart: Any) -> None:
    with pytest.raises(BadInput, match="prestart must be from 0 to 256"):
        Worker(queue, [prestarted_app.make()], prestart=prestart)


@ON_SQLITE
def test_a_prestarted_process_that_was_killed_costs_the_next_attempt_nothing(queue: Queue) -> None:
    with working(queue, prestarted_app.make()) as worker:
        pid = make_ready(queue, worker)
        os.kill(pid, signal.SIGKILL)
        until(lambda: not alive(pid))
        task = run(queue)
        assert (task.retry_count, task.crash_count) == (0, 0)
        until(lambda: pool_of(worker).ready, "a replacement")


@ON_SQLITE
def test_a_process_that_dies_between_its_choice_and_the_handler_is_replaced_within_the_attempt(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take(self: PrestartedProcesses) -> HandlerProcess | None:
        process = original(self)
        if process is not None:
            os.kill(process.child.pid, signal.SIGKILL)
            until(lambda: not alive(process.child.pid))
        return process

    original: Callable[[PrestartedProcesses], HandlerProcess | None] = PrestartedProcesses.take
    with working(queue, prestarted_app.make()) as worker:
        pid = make_ready(queue, worker)
        monkeypatch.setattr(PrestartedProcesses, "take", take)
        task = run(queue)
    assert (task.retry_count, task.crash_count, task.attempt) == (0, 0, 1)
    assert task.results["tell"]["pid"] != pid


@ON_SQLITE
def test_a_process_with_an_older_environment_is_not_used(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    with working(queue, prestarted_app.make()) as worker:
        pid = make_ready(queue, worker)
        monkeypatch.setenv("PRESTARTED_APP", "changed")
        task = run(queue)
        assert task.results["tell"]["variable"] == "changed"
        until(lambda: not alive(pid), "the end of the unused process")


@ON_SQLITE
def test_a_prestarted_process_has_the_memory_limit_and_the_timeout_of_its_attempt(queue: Queue) -> None:
    pipeline = prestarted_app.make(memory_limit="150MB")
    with working(queue, pipeline) as worker:
        pid = make_ready(queue, worker)
        done = ended(queue, queue.add(pipeline, {"bytes": 300_000_000}))
        assert not alive(pid)
    assert (done.error_class, done.error) == ("resource", "tell used more than 150 MB of memory (its memory_limit)")


@ON_SQLITE
def test_a_cancel_ends_an_attempt_in_a_prestarted_process(queue: Queue, tmp_path: Path) -> None:
    with working(queue, prestarted_app.make()) as worker:
        pid = make_ready(queue, worker)
        task = queue.add(prestarted_app.make(), {"hold": str(tmp_path / "hold")})
        until((tmp_path / "hold.began").exists, "the beginning")
        queue.cancel(task.task_id)
        assert ended(queue, task).status is Status.CANCELLED
        until(lambda: not alive(pid))


@pytest.fixture
def pool() -> Iterator[PrestartedProcesses]:
    with ProcessHost() as host:
        made = PrestartedProcesses(host, most=2)
        made.handlers = [HANDLER]
        yield made
        made.close()


def test_the_pool_grows_with_the_attempts_that_found_none_up_to_its_maximum(pool: PrestartedProcesses) -> None:
    for missed in range(1, 5):
        assert pool.take() is None or missed > 1
        pool.refill()
        assert len(pool._idle) <= 2
    until(lambda: pool.ready == 2, "two processes")


def test_an_unused_process_ends_and_is_not_replaced(pool: PrestartedProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pool.take() is None
    pool.refill()
    until(lambda: pool.ready, "a process")
    pid = pool._idle[0].child.pid
    monkeypatch.setattr(prestarted, "_IDLE_FOR", 0.0)
    pool.tick(datetime.now(UTC))
    until(lambda: not alive(pid))
    pool.refill()
    assert pool._idle == []
    until(lambda: pool.tick(datetime.now(UTC)) and not pool._ending, "its pipes to be closed")


def test_after_an_import_that_failed_no_process_is_started_for_a_while(pool: PrestartedProcesses) -> None:
    pool.handlers = ["tests.engine.worker.no_such_module:handler"]
    assert pool.take() is None
    pool.refill()
    [process] = pool._idle
    until(lambda: process.has_ended, "the end of the process")
    assert pool.take() is None
    pool.tick(datetime.now(UTC))
    pool.refill()
    assert pool._idle == []


def test_a_process_that_never_becomes_ready_is_ended(
    pool: PrestartedProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pool.take() is None
    pool.refill()
    [process] = pool._idle
    os.kill(process.child.pid, signal.SIGSTOP)
    monkeypatch.setattr(prestarted, "_READY_WITHIN", 0.0)
    until(lambda: pool.tick(datetime.now(UTC)) and not pool._idle, "the end of the wait")
    until(lambda: not alive(process.child.pid))
