"""Branching: a handler may skip phases or complete the task early."""

from typing import Any

import pytest

from onerow import Finish, Jump, Pipeline, Status
from onerow.engine.queue.queue import Queue
from tests.engine.conftest import ended, working


def news(choice: Any) -> Pipeline:
    pipeline = Pipeline("news")

    @pipeline.phase
    def read(job: Any) -> Any:
        return choice

    @pipeline.phase
    def translate(job: Any, read: Any) -> Any:
        return "translated"

    @pipeline.phase
    def publish(job: Any, read: Any, translate: Any) -> Any:
        return [read, translate]

    return pipeline


def test_a_jump_skips_phases_and_is_recorded(queue: Queue) -> None:
    pipeline = news(Jump("publish", "english"))
    with working(queue, pipeline):
        task = ended(queue, queue.add(pipeline).task_id)
    assert (task.status, task.results) == (Status.COMPLETED, {"read": "english", "publish": ["english", None]})
    assert [(entry.phase, entry.what, entry.note) for entry in task.history] == [
        ("read", "advanced", "to publish"),
        ("publish", "completed", ""),
    ]


def test_a_finish_completes_the_task_early_and_is_recorded(queue: Queue) -> None:
    pipeline = news(Finish("nothing new"))
    with working(queue, pipeline):
        task = ended(queue, queue.add(pipeline).task_id)
    assert (task.status, task.phase, task.results) == (Status.COMPLETED, "read", {"read": "nothing new"})
    assert [(entry.phase, entry.what, entry.note) for entry in task.history] == [("read", "completed", "early")]


@pytest.mark.parametrize("given, key", [("heavy", "heavy"), ("", ""), (None, "of the caller")])
def test_a_jump_may_set_the_limit_key_for_the_phases_after_it(queue: Queue, given: str | None, key: str) -> None:
    pipeline = news(Jump("publish", limit_key=given))
    with working(queue, pipeline):
        task = ended(queue, queue.add(pipeline, limit_key="of the caller").task_id)
    assert (task.status, task.limit_key) == (Status.COMPLETED, key)


def test_a_jump_with_a_limit_key_that_can_t_be_stored_fails_the_task(queue: Queue) -> None:
    pipeline = news(Jump("publish", limit_key="k" * 201))
    with working(queue, pipeline):
        task = ended(queue, queue.add(pipeline).task_id)
    assert (task.status, task.error_class, task.phase) == (Status.FAILED, "permanent", "read")
    assert "limit_key has 201 characters" in (task.error or "")


@pytest.mark.parametrize("phase", ["read", "nowhere"])
def test_a_jump_to_an_earlier_or_unknown_phase_fails_the_task(queue: Queue, phase: str) -> None:
    pipeline = news(Jump(phase))
    with working(queue, pipeline):
        task = ended(queue, queue.add(pipeline).task_id)
    assert (task.status, task.error_class, task.attempt) == (Status.FAILED, "permanent", 1)
    assert phase in (task.error or "")
