"""Definitions in the store: how programs without the code know a pipeline."""

import threading
from dataclasses import dataclass
from typing import Any

import pytest

from onerow import Pipeline, Queue, Retry, Status, UnknownName
from onerow.engine.control.definitions import BINDS_AFTER, load_plans, replaced
from onerow.engine.events.events import DefinitionReplaced
from onerow.engine.queue.scope import plan_of
from onerow.ports import Note
from onerow.stores.memory import MemoryStore
from tests.conformance.stores import Clock
from tests.engine.kit import ended, finish_all, reached, work, working


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


def test_a_published_definition_is_read_back_unchanged(queue: Queue) -> None:
    assert queue.publish(videos()) == ["videos"]
    assert load_plans(queue.store)["videos"] == videos().plan
    plan = plan_of(Queue(queue.store), "videos")
    assert [(phase.name, phase.kind) for phase in plan.phases] == [
        ("schedule", "wait_until"), ("script", "run"), ("image", "wait_for"),
    ]  # fmt: skip
    assert (plan.phase("script").concurrency, plan.phase("script").retry.max_retries) == (1, 4)
    assert (plan.title, plan.code, plan.required) == ("{topic}", "v1", ("topic",))
    assert plan.payload_schema is not None


def test_only_changed_definitions_are_written(queue: Queue) -> None:
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


def test_a_payload_added_by_name_needs_the_required_fields(queue: Queue) -> None:
    queue.publish(videos())
    with pytest.raises(ValueError, match="topic") as refused:
        Queue(queue.store).add("videos", {"length": 5})
    assert getattr(refused.value, "field", "").startswith("payload")
    assert queue.count() == []


def test_a_program_without_the_code_can_operate_on_tasks(queue: Queue) -> None:
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


def test_an_older_definition_is_published_only_by_force(queue: Queue) -> None:
    for limit in (1, 2, 3):
        assert Queue(queue.store).publish(videos(limit)) == ["videos"]
    for older in (1, 2):
        assert Queue(queue.store).publish(videos(older)) == []
        assert replaced(queue.store, [videos(older).plan]) == ["videos"]
    assert replaced(queue.store, [videos(3).plan, videos(4).plan]) == []
    assert load_plans(queue.store)["videos"] == videos(3).plan
    assert Queue(queue.store).publish(videos(2), force=True) == ["videos"]
    assert load_plans(queue.store)["videos"] == videos(2).plan
    assert replaced(queue.store, [videos(2).plan]) == []
    assert Queue(queue.store).publish(videos(3)) == []


def test_a_worker_with_an_older_definition_reports_it_and_follows_the_newer_one(queue: Queue) -> None:
    said: list[DefinitionReplaced] = []
    Queue(queue.store).publish(letters("write"))
    Queue(queue.store).publish(letters("write", "send"))
    (published,) = queue.store.notes("pipeline")
    queue.on(DefinitionReplaced, said.append)
    task = queue.add(letters("write"))
    work(queue, letters("write"))
    assert queue.store.notes("pipeline") == [published]
    assert said == [DefinitionReplaced("letters", ("send",))]
    assert (queue.get(task.task_id).phase, queue.get(task.task_id).status) == ("send", Status.WAITING)


def test_a_running_worker_follows_what_is_published_when_publishing_returns(queue: Queue) -> None:
    with working(queue, letters("write")):
        assert ended(queue, queue.add(letters("write"))).status is Status.COMPLETED
        assert Queue(queue.store).publish(letters("write", "send")) == ["letters"]
        task = queue.add(letters("write"))
        reached(queue, task, Status.WAITING, "send")
    work(Queue(queue.store), letters("write", "send"))
    assert [entry.phase for entry in queue.get(task.task_id).history] == ["write", "send"]


def test_limits_of_a_newer_definition_apply_to_older_code(queue: Queue) -> None:
    pipeline = Pipeline("letters")
    both = threading.Barrier(2)

    @pipeline.phase
    def write(job: object) -> None:
        with pytest.raises(threading.BrokenBarrierError):
            both.wait(0.3)

    Queue(queue.store).publish(pipeline)
    Queue(queue.store).publish(letters("write", concurrency=1))
    queue.add_many(pipeline, range(3))
    assert [task.status for task in finish_all(queue, pipeline)] == [Status.COMPLETED] * 3


def test_a_pull_program_with_older_code_follows_the_newer_definition(queue: Queue) -> None:
    old = letters("write")
    queue.publish(old)
    task = queue.add(old)
    (lease,) = queue.claim(old)
    Queue(queue.store).publish(letters("write", "send"))
    queue.definitions.refresh()  # happens automatically once the last read is too old
    assert lease.complete().phase == "send"
    assert queue.get(task.task_id).status is Status.WAITING


def test_stale_definitions_are_read_again_before_use() -> None:
    clock = Clock()
    queue = Queue(MemoryStore(clock))
    queue.publish(letters("write"))
    Queue(queue.store).publish(letters("write", "send"))
    queue.definitions.refresh_if_stale(queue.store.now())
    assert [phase.name for phase in queue.definitions.follow(letters("write").plan).phases] == ["write"]
    clock.forward(BINDS_AFTER)
    queue.definitions.refresh_if_stale(queue.store.now())
    assert [phase.name for phase in queue.definitions.follow(letters("write").plan).phases] == ["write", "send"]


def test_concurrent_publishes_are_all_recorded(queue: Queue) -> None:
    start = threading.Barrier(4)

    def publish(limit: int) -> None:
        start.wait()
        Queue(queue.store).publish(videos(limit))

    threads = [threading.Thread(target=publish, args=(limit,)) for limit in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    plans = [videos(limit).plan for limit in range(1, 5)]
    assert len(replaced(queue.store, plans)) == 3
    assert load_plans(queue.store)["videos"] in plans


def letters(*phases: str, **terms: Any) -> Pipeline:
    pipeline = Pipeline("letters")
    for name in phases:
        pipeline.phase(name=name, **terms)(lambda job: None)
    return pipeline
