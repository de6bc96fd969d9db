"""Workers killed repeatedly, on every store: each task completes; only a task that kills its own process fails."""

import time

import pytest

from onerow import Status
from tests.engine.kit import until
from tests.faults import app
from tests.faults.kit import Crew, Place, check_story

pytestmark = [pytest.mark.faults, pytest.mark.promise("P1", "P4")]


def trial(place: Place, tasks: int, kills: int, every: float, phase_takes: float = 0.2) -> None:
    """Add tasks of five phases, kill busy worker processes at regular intervals, and check the outcome of each task."""
    place.queue.publish(app.relay)
    added = place.queue.add_many(app.relay, [{"for": phase_takes}] * tasks)
    crew = Crew(place, 2)
    until(lambda: place.queue.store.notes("worker"), "the first worker")
    while crew.kills < kills:
        time.sleep(every)
        crew.kill_one()
    until(lambda: all(task.ended for task in place.everything()), "the end of all tasks", seconds=600)
    found = {task.task_id: task for task in place.everything()}
    ends = [found[task.task_id] for task in added]
    assert [(task.status, task.error_class, task.error) for task in ends] == [(Status.COMPLETED, None, None)] * tasks
    for task in ends:
        check_story(task, app.RELAY)
        assert (task.retry_count, task.crash_count) == (0, 0), task.history
        assert {entry.what for entry in task.history} <= {"advanced", "completed", "rescued"}, task.history
    assert any(entry.what == "rescued" for task in ends for entry in task.history), "no kill hit a running task"


@pytest.mark.slow
def test_two_hundred_tasks_complete_while_a_worker_is_killed_every_two_seconds_for_a_minute(any_place: Place) -> None:
    trial(any_place, 200, 30, 2.0)


def test_ten_tasks_complete_while_workers_are_killed(any_place: Place) -> None:
    trial(any_place, 10, 2, 0.3, phase_takes=0.5)


def test_p10_a_task_that_kills_its_process_ends_failed_and_its_neighbours_complete(any_place: Place) -> None:
    poisoned(any_place, 1, neighbours=8)


@pytest.mark.slow
def test_p10_two_tasks_that_kill_their_process_end_failed_and_their_fifty_neighbours_complete(any_place: Place) -> None:
    poisoned(any_place, 2, neighbours=50)


def poisoned(place: Place, poison: int, neighbours: int) -> None:
    """Add tasks, some of which kill their process, and check the outcome of each."""
    place.queue.publish(app.poison)
    before = neighbours // 5
    kills = [before <= number < before + poison for number in range(poison + neighbours)]
    tasks = place.queue.add_many(app.poison, kills)
    place.worker("--concurrency", "6")
    until(lambda: all(task.ended for task in place.everything()), "the end of all tasks", seconds=500)
    found = {task.task_id: task for task in place.everything()}
    for task in tasks:
        end = found[task.task_id]
        if end.payload:
            assert (end.status, end.error_class, end.crash_count) == (Status.FAILED, "crash", 3), end
            assert [entry.what for entry in end.history][-3:] == ["failed"] * 3
        else:
            assert (end.status, end.retry_count, end.crash_count) == (Status.COMPLETED, 0, 0), end
            assert {entry.what for entry in end.history} <= {"rescued", "completed"}
