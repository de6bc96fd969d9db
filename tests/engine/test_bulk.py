"""Bulk acts: on all tasks that match, with a count first, at a pace, and with a record of who."""

import time
from datetime import timedelta
from typing import Any

import pytest

from onerow import BadInput, Filter, Permanent, Pipeline, Retry, Status, TaskCancelled
from onerow.engine.queue import bulk
from onerow.engine.queue.bulk import Progress
from onerow.engine.queue.queue import Queue
from tests.engine.conftest import until, working

WAITING = Filter(statuses=frozenset({Status.WAITING}))


def posts(broken: bool = False) -> Pipeline:
    pipeline = Pipeline("posts")

    @pipeline.phase
    def tag(job: Any) -> Any:
        if broken:
            raise Permanent("broken")
        return job

    return pipeline


def statuses(queue: Queue) -> dict[Status, int]:
    return {line.status: line.count for line in queue.count()}


def test_an_act_on_all_that_match_says_how_many_first_and_who_did_it(queue: Queue) -> None:
    pipeline = posts()
    queue.add_many(pipeline, range(450), user_id="ann")
    queue.add_many(pipeline, range(3), user_id="bob")
    chosen = queue.select(Filter(user_id="ann"))
    assert len(chosen) == 450
    said = chosen.cancel(by="eve", note="spring cleaning")
    assert (said.matched, said.done, said.refused, said.whole) == (450, 450, 0, True)
    assert statuses(queue) == {Status.CANCELLED: 450, Status.WAITING: 3}
    entry = queue.find(Filter(user_id="ann")).tasks[0].history[-1]
    assert (entry.what, entry.by, entry.note) == ("cancel", "eve", "spring cleaning")
    (record,) = bulk.records(queue)
    assert record == said


def test_a_selection_reads_every_task_that_matches_the_newest_first(queue: Queue) -> None:
    queue.add_many(posts(), range(450), user_id="ann")
    queue.add_many(posts(), range(3), user_id="bob")
    found = [task.payload for task in queue.select(Filter(user_id="ann"))]
    assert found == sorted(range(450), reverse=True)


def test_failed_tasks_are_retried_together_as_a_policy_would(queue: Queue) -> None:
    pipeline = posts()
    queue.publish(pipeline)
    queue.add_many(pipeline, range(4))
    for lease, error in zip(queue.claim(pipeline, limit=4), ["network", "permanent", "network", "auth"], strict=True):
        lease.fail(error, error_class=error, retry=True)
    for task in queue.find(WAITING).tasks:
        queue.reschedule(task.task_id, queue.store.now())
    for lease in queue.claim(pipeline, limit=4):
        lease.fail("broken", error_class="timeout")
    policy = Retry(1, wait="1h", classes={"timeout": True})
    said = queue.retry_failed(Filter(pipeline="posts"), policy=policy)
    assert (said.matched, said.done, said.refused) == (4, 0, 4)  # the network's were tried again once already
    said = queue.retry_failed(Filter(pipeline="posts"), policy=Retry(2, wait="1h", classes={"timeout": True}))
    assert (said.matched, said.done, said.refused) == (4, 2, 2)
    assert len(queue.claim(pipeline, limit=4)) == 0
    assert statuses(queue) == {Status.WAITING: 2, Status.FAILED: 2}


def test_failed_tasks_are_retried_together(queue: Queue) -> None:
    queue.add_many(posts(), range(20))
    with working(queue, posts(broken=True)):
        until(lambda: statuses(queue) == {Status.FAILED: 20})
    queue.pipelines.clear()
    assert queue.retry_failed(Filter(error_class="network")).done == 0
    said = queue.retry_failed(Filter(pipeline="posts", error_class="permanent"), by="ann")
    assert said.done == 20
    with working(queue, posts()):
        until(lambda: statuses(queue) == {Status.COMPLETED: 20})


def test_every_act_can_be_done_in_bulk(queue: Queue) -> None:
    pipeline = Pipeline("posts")
    pipeline.wait_for("approval", signal="go")
    pipeline.phase(name="tag")(lambda job: None)
    queue.publish(pipeline)
    queue.add_many(pipeline, range(4))
    everything = queue.select()
    later = queue.store.now() + timedelta(hours=1)
    assert everything.set_priority(-5).done == 4
    assert everything.reschedule(later).done == 4
    assert everything.annotate({"batch": 7}).done == 4
    assert everything.signal("go", {"by": "ann"}).done == 4
    tasks = queue.find().tasks
    assert {(task.priority, task.awaiting, task.metadata["batch"]) for task in tasks} == {(-5, None, 7)}
    assert everything.finish(phase_only=True).done == 4
    assert everything.finish().done == 4
    assert statuses(queue) == {Status.COMPLETED: 4}
    assert everything.replay("tag").done == 4
    assert {task.phase for task in queue.find().tasks} == {"tag"}


def test_what_an_act_is_not_for_is_refused_and_named(queue: Queue) -> None:
    good, other = queue.add_many(posts(), range(2))
    queue.cancel(other.task_id)
    said = queue.select().cancel()
    assert (said.done, said.refused) == (1, 1)
    ((task_id, why),) = said.problems
    assert task_id == other.task_id
    assert "only waiting or failed tasks can be cancelled" in why
    assert queue.get(good.task_id).status is Status.CANCELLED


def test_a_key_that_is_taken_meanwhile_refuses_its_task_alone(queue: Queue) -> None:
    tasks = [queue.add(posts(), unique=f"k{n}") for n in range(3)]
    with working(queue, posts(broken=True)):
        until(lambda: statuses(queue) == {Status.FAILED: 3})
    holder = queue.add(posts(), unique="k1")
    said = queue.retry_failed()
    assert (said.done, said.refused) == (2, 1)
    assert said.problems[0][0] == tasks[1].task_id
    assert holder.task_id in said.problems[0][1]


def test_a_pace_spreads_the_acts_and_progress_is_told(queue: Queue) -> None:
    queue.add_many(posts(), range(6))
    told: list[Progress] = []
    began = time.monotonic()
    said = queue.select(WAITING).cancel(pace="50/s", progress=told.append)
    assert time.monotonic() - began >= 5 / 50
    assert said.done == 6
    assert told[-1] == said


def test_a_limit_leaves_the_rest_alone(queue: Queue) -> None:
    queue.add_many(posts(), range(10))
    said = queue.select(WAITING).cancel(limit=4)
    assert (said.matched, said.done, said.whole) == (10, 4, False)
    assert statuses(queue) == {Status.CANCELLED: 4, Status.WAITING: 6}
    with pytest.raises(BadInput):
        queue.select(WAITING).cancel(limit=0)


def test_an_interrupted_act_leaves_a_record_of_how_far_it_got(queue: Queue) -> None:
    queue.add_many(posts(), range(10))
    chosen = queue.select(WAITING)
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt

    chosen._sleep = sleep
    with pytest.raises(KeyboardInterrupt):
        chosen.cancel(pace="20/min", by="ann")
    assert slept == [3.0, 3.0, 3.0]
    (record,) = bulk.records(queue)
    assert (record.done, record.whole, record.by) == (3, False, "ann")
    assert record.ended_at


def test_a_queue_for_one_user_acts_on_its_own_tasks_only(queue: Queue) -> None:
    queue.add_many(posts(), range(3), user_id="ann")
    queue.add_many(posts(), range(2), user_id="bob")
    assert queue.for_user("ann").select().cancel().done == 3
    assert statuses(queue) == {Status.CANCELLED: 3, Status.WAITING: 2}


def test_hooks_hear_of_each(queue: Queue) -> None:
    heard: list[str] = []
    queue.on(TaskCancelled, lambda event: heard.append(event.task.task_id))
    tasks = queue.add_many(posts(), range(3))
    queue.select().cancel()
    assert sorted(heard) == sorted(task.task_id for task in tasks)
