"""Requests of a handler to its worker from an isolated process."""

from onerow import Status
from onerow.engine.queue.queue import Queue
from tests.engine.conftest import ended, parked, working
from tests.engine.isolated_requests_app import far, nowhere, parts


def test_steps_children_waits_and_branches_work_over_the_pipe(queue: Queue) -> None:
    with working(queue, far, parts):
        task_id = queue.add(far).task_id
        parked(queue, task_id, "signal:go")
        queue.signal(task_id, "go", {"by": "ann"})
        task = ended(queue, task_id)
    assert (task.status, task.error) == (Status.COMPLETED, None)
    # The process was killed after its first step, which is not repeated.
    assert task.results == {"first": [True, 2, ["a", "b"], {"by": "ann"}], "third": 1}


def test_an_error_keeps_its_type_over_the_pipe(queue: Queue) -> None:
    with working(queue, nowhere):
        task = ended(queue, queue.add(nowhere).task_id)
    assert task.status is Status.FAILED
    assert "no pipeline 'no such pipeline'" in (task.error or "")
