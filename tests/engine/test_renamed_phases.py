"""Renamed phases: what operators set for a phase, its rate, its holds and its step records apply under the new name."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from onerow import Pipeline, RateLimited, Status
from onerow.engine.queue.queue import Queue
from onerow.engine.runners.attempt import ServedPhase
from onerow.engine.views import Views
from onerow.engine.worker.roles.controls import PhaseControls
from onerow.identity import Identity


def cutting(**options: Any) -> Pipeline:
    pipeline = Pipeline("clips")
    pipeline.phase(name="cut", **options)(lambda job: None)
    return pipeline


def trimming(**options: Any) -> Pipeline:
    pipeline = Pipeline("clips")
    pipeline.phase(name="trim", renamed_from="cut", **options)(lambda job: None)
    return pipeline


def renamed(queue: Queue, **options: Any) -> Queue:
    """Return a queue of code in which the phase has its new name, published."""
    later = type(queue)(queue.store)
    later.publish(trimming(**options))
    return later


def test_a_pause_of_the_old_name_applies_to_the_new_one(queue: Queue) -> None:
    queue.publish(cutting())
    queue.pause("clips", "cut", reason="the disk is full")
    later = renamed(queue)
    task = later.add("clips")
    assert not list(later.claim("clips"))
    views = Views(later)
    assert views.why(task).code == "paused"
    (lane,) = views.board().pipelines[0].lanes
    assert lane.paused is not None
    assert lane.paused.reason == "the disk is full"
    assert later.resume("clips", "trim")
    assert len(later.claim("clips")) == 1


@pytest.mark.parametrize("name", ["cut", "trim"])
def test_a_pause_and_a_limit_may_be_set_under_either_name(queue: Queue, name: str) -> None:
    later = renamed(queue)
    later.add_many("clips", range(3))
    later.pause("clips", name)
    assert not list(later.claim("clips"))
    assert later.resume("clips", name)
    later.set_limit("clips", name, concurrency=1)
    assert len(later.claim("clips", limit=3)) == 1
    assert later.reset_limit("clips", name)
    assert len(later.claim("clips", limit=3)) == 2


def test_limits_of_the_old_name_apply_to_the_new_one_and_setting_one_keeps_the_other(queue: Queue) -> None:
    queue.publish(cutting())
    queue.set_limit("clips", "cut", concurrency=3, per_key=1)
    later = renamed(queue)
    later.add_many("clips", range(3), limit_key="a")
    later.add_many("clips", range(3), limit_key="b")
    held = later.claim("clips", limit=6)
    assert {lease.task.limit_key for lease in held} == {"a", "b"}
    assert len(held) == 2
    later.set_limit("clips", "trim", concurrency=9)
    (lane,) = Views(later).board().pipelines[0].lanes
    assert (lane.limit, lane.per_key) == (9, 1)
    assert later.reset_limit("clips", "trim")
    assert len(later.claim("clips", limit=6)) == 4


def test_a_hold_of_the_old_name_applies_to_the_new_one(queue: Queue) -> None:
    queue.publish(cutting())
    queue.add("clips")
    (lease,) = queue.claim("clips")
    lease.fail(RateLimited(after="1h", scope="phase"))
    later = renamed(queue)
    task = later.add("clips")
    assert not list(later.claim("clips"))
    assert Views(later).why(task).code == "held"


def test_the_rate_used_up_under_the_old_name_is_used_up_under_the_new_one(queue: Queue) -> None:
    queue.publish(cutting(rate="2/h"))
    queue.add_many("clips", range(2))
    assert len(queue.claim("clips", limit=2)) == 2
    later = renamed(queue, rate="2/h")
    task = later.add("clips")
    assert not list(later.claim("clips"))
    assert Views(later).why(task).code == "rate"


def test_a_worker_with_the_old_code_follows_what_is_set_under_the_new_name(queue: Queue) -> None:
    old = cutting()
    queue.publish(old)
    later = renamed(queue, concurrency=7)
    served = cast(ServedPhase, SimpleNamespace(plan=old.plan, phase=old.plan.first, pipeline="clips"))
    controls = PhaseControls(queue.store, Identity.of_this_process(), [served], 1)
    controls.tick(queue.store.now())
    assert controls.terms(served, queue.store.now()) == (7, None)
    later.set_limit("clips", "trim", concurrency=2)
    controls.tick(queue.store.now())
    assert controls.terms(served, queue.store.now()) == (2, None)
    later.pause("clips", "trim")
    controls.tick(queue.store.now())
    assert controls.terms(served, queue.store.now()) is None


def test_a_failed_task_retried_after_the_rename_keeps_its_steps(queue: Queue) -> None:
    queue.publish(cutting())
    task = queue.add("clips")
    (lease,) = queue.claim("clips")
    lease.remember("downloaded", {"bytes": 5})
    lease.fail("no space", retry=False)
    later = renamed(queue)
    assert later.get(task.task_id).status is Status.FAILED
    again = later.retry(task.task_id)
    assert (again.status, again.phase) == (Status.WAITING, "trim")
    (lease,) = later.claim("clips")
    assert lease.recall("downloaded") == {"bytes": 5}
