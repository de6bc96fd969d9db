"""Threads that hang for ever: their tasks time out, their worker process is replaced, and no other task is affected."""

import pytest

from onerow import Status
from tests.engine.kit import until
from tests.faults import app
from tests.faults.kit import Place

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("tasks, hung, threads", [(16, 4, 4), pytest.param(120, 30, 16, marks=pytest.mark.slow)])
def test_tasks_that_hang_time_out_and_all_others_complete(place: Place, tasks: int, hung: int, threads: int) -> None:
    every = tasks // hung
    added = place.queue.add_many(app.hanging_crowd, [{"hangs": number % every == 0} for number in range(tasks)])
    place.worker("--concurrency", str(threads))
    until(lambda: all(task.ended for task in place.everything()), "the end of all tasks", seconds=600)
    for number, task in enumerate(place.queue.get(task.task_id) for task in added):
        # Tasks that ended with their process before their own timeout are handed back; a rescue would mean a dead worker.
        history = [entry.what for entry in task.history if entry.what != "handed back"]
        if number % every == 0:
            assert (task.status, task.error_class, history) == (Status.FAILED, "timeout", ["failed"])
        else:
            assert (task.status, task.retry_count, history) == (Status.COMPLETED, 0, ["completed"])
        assert task.crash_count == 0
    processes = {words[1] for words in place.notes("begin")}
    assert len(processes) <= 5  # two full of hung threads and one for the rest; a slow machine may take a few more
