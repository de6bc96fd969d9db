"""SIGKILL during spawns, joins and schedules: no child is added twice, no parent waits for ever, no time fires twice."""

import time
from itertools import pairwise

import pytest

from onerow import Filter, Status, Task
from tests.engine.kit import until
from tests.faults import app
from tests.faults.kit import Place

pytestmark = [pytest.mark.faults, pytest.mark.promise("P1", "P4")]


def children(place: Place, parent: Task) -> list[Task]:
    return place.queue.find(Filter(parent_id=parent.task_id), limit=10_000, order="oldest").tasks


@pytest.mark.parametrize(
    "point", ["growing", *(pytest.param(p, marks=pytest.mark.slow) for p in ("step", "midst", "spawned", "joined"))]
)
def test_a_worker_killed_at_any_point_spawns_none_twice_and_leaves_no_parent_waiting(place: Place, point: str) -> None:
    worker = place.worker("--concurrency", "3")
    parent = place.queue.add(app.tree, point)
    until(lambda: place.notes(point), point)
    worker.kill("worker")
    done = place.ended(parent)
    assert (done.status, done.result) == (Status.COMPLETED, ["yes", app.LEAVES, app.LEAVES]), done.error
    found = children(place, parent)
    assert sorted(child.payload for child in found) == list(range(app.LEAVES))
    assert {child.status for child in found} == {Status.COMPLETED}
    assert len(place.notes("planted")) == 1


@pytest.mark.slow
def test_workers_that_are_killed_repeatedly_fire_each_scheduled_time_once(place: Place) -> None:
    first, second = (place.worker(app="tests.faults.clockwork") for _ in range(2))
    for _ in range(3):
        for worker in (first, second):
            time.sleep(0.7)
            worker.kill("worker")
    began = place.queue.store.now()
    fired = Filter(pipeline="ticking", created_after=began)
    until(lambda: len(place.queue.find(fired).tasks) >= 2, "ticks after the last kill")
    tasks = place.queue.find(Filter(pipeline="ticking"), limit=1000, order="oldest").tasks
    times = sorted(task.scheduled_time for task in tasks if task.scheduled_time)
    assert len(times) == len(tasks)
    # Every second from the first to the last, each once.
    assert {(later - earlier).total_seconds() for earlier, later in pairwise(times)} == {1.0}
