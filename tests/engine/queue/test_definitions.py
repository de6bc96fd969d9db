"""Definitions in the store: what others know of a pipeline without its code."""

from dataclasses import dataclass

import pytest

from onerow import Pipeline, Queue, Retry, Status, UnknownName
from onerow.engine.definitions import load_plans
from onerow.ports import Note
from tests.engine.kit import work


@dataclass
class Video:
    topic: str
    length: int = 0


def videos(limit: int = 1) -> Pipeline:
    pipeline = Pipeline("videos", title="{topic}", code="v1")
    pipeline.wait_until("schedule", field="due")

    @pipeline.phase(concurrency=limit, retry=Retry(4, wait="1s"), timeout="15m", lease="10s")
    def script(job: Video) -> None: ...

    pipeline.wait_for("image", signal="images.ready", timeout="3d", on_timeout="script")
    return pipeline


def test_a_definition_comes_back_as_it_was(queue: Queue) -> None:
    assert queue.publish(videos()) == ["videos"]
    assert load_plans(queue.store)["videos"] == videos().plan
    plan = Queue(queue.store).plan("videos")
    assert [(phase.name, phase.kind) for phase in plan.phases] == [
        ("schedule", "wait_until"), ("script", "run"), ("image", "wait_for"),
    ]  # fmt: skip
    assert (plan.phase("script").concurrency, plan.phase("script").retry.max_retries) == (1, 4)
    assert (plan.title, plan.code, plan.required) == ("{topic}", "v1", ("topic",))
    assert plan.payload_schema is not None


def test_only_what_changed_is_written(queue: Queue) -> None:
    queue.publish(videos())
    version = queue.store.notes("pipeline")[0].version
    assert Queue(queue.store).publish(videos()) == []
    assert queue.store.notes("pipeline")[0].version == version
    assert Queue(queue.store).publish(videos(limit=5)) == ["videos"]
    assert load_plans(queue.store)["videos"].phase("script").concurrency == 5


def test_a_worker_publishes_what_it_serves(queue: Queue) -> None:
    work(queue, videos())
    task = Queue(queue.store).add("videos", {"topic": "tides"})
    assert (task.title, task.phase) == ("tides", "schedule")
    work(queue)
    assert (queue.get(task.task_id).phase, queue.get(task.task_id).awaiting) == ("image", "signal:images.ready")


def test_a_payload_added_by_name_needs_the_fields_that_the_code_demands(queue: Queue) -> None:
    queue.publish(videos())
    with pytest.raises(ValueError, match="topic") as refused:
        Queue(queue.store).add("videos", {"length": 5})
    assert getattr(refused.value, "field", "").startswith("payload")
    assert queue.count() == []


def test_one_without_the_code_can_act_on_tasks(queue: Queue) -> None:
    queue.publish(videos())
    stranger = Queue(queue.store)
    task = stranger.add("videos", {"topic": "tides"})
    stranger.finish(task.task_id, phase_only=True)
    (lease,) = stranger.claim("videos", "script")
    lease.fail("no pen", retry=False)
    assert stranger.retry(task.task_id).phase == "script"
    stranger.pause("videos", "script")
    assert len(stranger.claim("videos", "script")) == 0
    stranger.resume("videos", "script")
    (lease,) = stranger.claim("videos", "script")
    assert lease.complete("words").awaiting == "signal:images.ready"
    assert stranger.get(task.task_id).status is Status.WAITING


def test_a_definition_that_newer_code_wrote_does_not_hide_the_others(queue: Queue) -> None:
    queue.publish(videos())
    queue.store.write_notes([Note("pipeline", "future", {"name": "future", "phases": [{"kind": "teleport"}]})])
    stranger = Queue(queue.store)
    assert stranger.add("videos", {"topic": "tides"}).pipeline == "videos"
    with pytest.raises(UnknownName, match="future"):
        stranger.add("future", {})


def test_a_pipeline_published_later_is_found(queue: Queue) -> None:
    stranger = Queue(queue.store)
    with pytest.raises(UnknownName):
        stranger.add("videos", {"topic": "tides"})
    queue.publish(videos())
    assert stranger.add("videos", {"topic": "tides"}).pipeline == "videos"
