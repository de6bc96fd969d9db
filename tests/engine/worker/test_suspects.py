"""Suspects run in their own processes, and only a process that dies by itself counts as a crash of its task."""

import os
import signal
from collections.abc import Callable
from time import monotonic

import pytest

from onerow import Pipeline, Queue, Status, Task
from onerow.core import rules
from onerow.ports import Move
from tests.engine.kit import ON_SQLITE, ended, everything, history_of, until, work, working
from tests.engine.worker import suspect_app

pytestmark = pytest.mark.faults


def rescued(queue: Queue, tasks: list[Task]) -> None:
    """Leave these tasks as a dead worker would."""
    (pipeline,) = {task.pipeline for task in tasks}
    queue.publish(*(each for each in (suspect_app.quick, suspect_app.waiting) if each.name == pipeline))
    with queue.claim(pipeline, limit=len(tasks), ids=[task.task_id for task in tasks], worker="dead") as leases:
        moves = [Move(lease.task, rules.rescue(lease.task, queue.store.now())) for lease in leases]
        assert len(queue.store.swap(moves)) == len(tasks)


def test_a_suspect_runs_in_its_own_process_and_the_next_phase_does_not(queue: Queue) -> None:
    task = queue.add(suspect_app.quick, 1)
    rescued(queue, [task])
    work(queue, suspect_app.quick)
    alone = ended(queue, task)
    assert alone.result != os.getpid()
    assert (alone.rescue_count, history_of(alone)) == (1, [("rescued", "run"), ("completed", "run")])
    work(queue, suspect_app.quick)
    again = queue.replay(task.task_id)
    assert (again.rescue_count, again.suspect) == (0, False)
    work(queue, suspect_app.quick)
    assert ended(queue, task).result == os.getpid()


@ON_SQLITE
def test_few_suspects_start_at_once_and_ordinary_tasks_do_not_wait_for_them(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onerow.engine.worker.worker.cores", lambda: 2)
    suspects = queue.add_many(suspect_app.quick, range(8))
    rescued(queue, list(suspects))
    ordinary = queue.add_many(suspect_app.quick, range(20))
    most = 0
    with working(queue, suspect_app.quick) as worker:

        def all_ended() -> bool:
            nonlocal most
            clock, held = monotonic(), list(worker._in_flight.attempts.values())
            starting = [attempt for attempt in held if attempt.started_at is not None and not attempt.has_begun(clock)]
            most = max(most, len(starting))
            return all(task.ended for task in everything(queue))

        until(all_ended, "the end of all")
    alone = [queue.get(task.task_id) for task in suspects]
    together = [queue.get(task.task_id) for task in ordinary]
    assert {task.status for task in (*alone, *together)} == {Status.COMPLETED}
    assert {task.result for task in together} == {os.getpid()}
    assert len({task.result for task in alone} - {os.getpid()}) == len(alone)
    assert {(task.attempt, task.rescue_count, task.crash_count) for task in alone} == {(2, 1, 0)}
    assert max(str(task.completed_at) for task in together) < max(str(task.completed_at) for task in alone)
    assert 1 <= most <= 2, "more processes started at once than there are cores to use"


@ON_SQLITE
def test_a_worker_until_idle_runs_the_suspects_that_it_put_off(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onerow.engine.worker.worker.cores", lambda: 1)
    suspects = queue.add_many(suspect_app.quick, range(8))
    rescued(queue, list(suspects))
    work(queue, suspect_app.quick)
    assert {task.status for task in everything(queue)} == {Status.COMPLETED}


def kill_process(own: int, host: int) -> None:
    os.kill(own, signal.SIGKILL)


def kill_host(own: int, host: int) -> None:
    os.kill(host, signal.SIGKILL)


def hang_up_process(own: int, host: int) -> None:
    os.kill(own, signal.SIGHUP)


def hurt(queue: Queue, pipeline: Pipeline, task: Task, how: Callable[[int, int], None]) -> Task:
    """Run the task, do `how` to the process of its attempt, and return the task afterwards."""

    def at_work() -> tuple[int, ...]:
        now = queue.get(task.task_id)
        runs = now.status is Status.PROCESSING and now.progress
        return (now.progress["done"], now.progress["total"]) if runs else ()

    before = queue.get(task.task_id).attempt
    with working(queue, pipeline):
        own, host = until(at_work, "an attempt at work")
        assert own != os.getpid()
        how(own, host)
        until(lambda: len(queue.get(task.task_id).history) > before, "what came of it")
        return queue.get(task.task_id)


@ON_SQLITE
@pytest.mark.parametrize("pipeline", [suspect_app.isolated, suspect_app.waiting], ids=["isolated", "suspect"])
def test_an_isolated_process_that_dies_by_itself_counts_as_a_crash(queue: Queue, pipeline: Pipeline) -> None:
    task = queue.add(pipeline)
    if pipeline is suspect_app.waiting:
        rescued(queue, [task])
    after = hurt(queue, pipeline, task, kill_process)
    assert (after.crash_count, after.retry_count) == (1, 0)
    assert (after.history[-1].what, after.history[-1].error_class) == ("failed", "crash")


@ON_SQLITE
@pytest.mark.parametrize("how", [kill_host, hang_up_process])
def test_an_isolated_process_that_was_ended_from_outside_counts_as_nothing(
    queue: Queue, how: Callable[[int, int], None]
) -> None:
    task = queue.add(suspect_app.isolated)
    after = hurt(queue, suspect_app.isolated, task, how)
    assert (after.crash_count, after.retry_count, after.rescue_count) == (0, 0, 1)
    assert (after.history[-1].what, after.error) == ("rescued", None)
    assert after.history[-1].note in (
        "the process host of its worker was killed",
        "its process was sent SIGHUP from outside",
    )


@ON_SQLITE
def test_a_command_whose_process_host_was_killed_runs_again_at_no_cost(queue: Queue) -> None:
    pipeline = Pipeline("commands")
    pipeline.command("wait", ["sh", "-c", "echo $PPID; exec sleep 300"], retry=0, timeout="5m", lease="10m")
    task = queue.add(pipeline)
    with working(queue, pipeline):
        (line,) = until(lambda: queue.logs(task.task_id).lines, "its first line")
        os.kill(int(line.text), signal.SIGKILL)
        until(lambda: queue.get(task.task_id).history, "what came of it")
        after = queue.get(task.task_id)
    assert (after.history[0].what, after.retry_count, after.crash_count, after.rescue_count) == ("rescued", 0, 0, 1)
