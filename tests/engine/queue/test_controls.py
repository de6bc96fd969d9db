"""Pauses and limits set by operators: they apply to every claim."""

import threading

import pytest

from onerow import BadInput, Pipeline, Queue, Status
from onerow.engine.control import definitions
from tests.engine.kit import ended, finish_all, reached, until, work, working

clips = Pipeline("clips")
lock = threading.Lock()


@clips.phase
def cut(job: object) -> None: ...


@clips.phase
def post(job: object) -> None: ...


def test_no_task_is_claimed_from_a_paused_phase(queue: Queue) -> None:
    queue.serve(clips)
    queue.pause(clips, "post", by="kim", reason="site is down")
    task = queue.add(clips)
    work(queue)
    assert (queue.get(task.task_id).status, queue.get(task.task_id).phase) == (Status.WAITING, "post")
    assert len(queue.claim(clips, "post")) == 0
    assert queue.resume(clips, "post") is True
    assert queue.resume(clips, "post") is False
    work(queue)
    assert queue.get(task.task_id).status is Status.COMPLETED


def test_a_pause_records_who_and_why(queue: Queue) -> None:
    queue.pause(clips, "post", by="kim", reason="site is down")
    (note,) = queue.store.notes("pause")
    assert (note.name, note.body["by"], note.body["reason"]) == ("clips/post", "kim", "site is down")


def test_a_pause_of_the_pipeline_applies_to_all_its_phases(queue: Queue) -> None:
    queue.pause(clips)
    task = queue.add(clips)
    work(queue, clips)
    assert queue.get(task.task_id).attempt == 0
    queue.resume(clips)
    work(queue, clips)
    assert queue.get(task.task_id).status is Status.COMPLETED


def test_a_running_worker_follows_a_pause_and_its_end(queue: Queue) -> None:
    other = Pipeline("other")
    other.phase(name="run")(cut)
    with working(queue, clips, other):
        ended(queue, queue.add(clips))
        queue.pause(clips, "post")
        for _ in range(1000):  # a pause takes effect within a second; until then tasks may still be claimed
            task = queue.add(clips)
            until(lambda held=task: queue.get(held.task_id).phase == "post")  # type: ignore[misc]
            for _ in range(3):
                ended(queue, queue.add(other))  # would be claimed after the task that waits at `post`
            if not queue.get(task.task_id).ended:
                break
        assert queue.get(task.task_id).status is Status.WAITING
        queue.resume(clips, "post")
        assert ended(queue, task).status is Status.COMPLETED


def test_a_running_attempt_continues_during_a_pause(queue: Queue) -> None:
    slow = Pipeline("slow")
    go = threading.Event()

    @slow.phase
    def run(job: object) -> None:
        go.wait(900)

    task = queue.add(slow)
    with working(queue, slow):
        reached(queue, task, Status.PROCESSING)
        queue.pause(slow)
        go.set()
        assert ended(queue, task).status is Status.COMPLETED


def limited(count: int, seen: list[int]) -> Pipeline:
    """A pipeline whose phase has the limit `count` and records how many attempts run concurrently."""
    pipeline = Pipeline("limited")
    together = 0

    @pipeline.phase(concurrency=count)
    def run(job: object) -> None:
        nonlocal together
        with lock:
            together += 1
            seen.append(together)
        threading.Event().wait(0.02)
        with lock:
            together -= 1

    return pipeline


def test_a_limit_set_by_an_operator_overrides_the_one_in_code(queue: Queue) -> None:
    seen: list[int] = []
    pipeline = limited(8, seen)
    queue.add_many(pipeline, range(20))
    queue.set_limit(pipeline, "run", concurrency=2)
    finish_all(queue, pipeline, concurrency=10)
    assert max(seen) <= 2
    assert len(seen) == 20


def test_reset_limit_restores_the_limit_in_code(queue: Queue) -> None:
    pipeline = limited(3, [])
    queue.serve(pipeline)
    queue.add_many(pipeline, range(10))
    queue.set_limit(pipeline, "run", concurrency=1)
    assert len(queue.claim(pipeline, limit=10)) == 1
    assert queue.reset_limit(pipeline, "run") is True
    assert queue.reset_limit(pipeline, "run") is False
    assert len(queue.claim(pipeline, limit=10)) == 2


def test_setting_one_limit_leaves_the_other_as_it_is(queue: Queue) -> None:
    pipeline = Pipeline("both")

    @pipeline.phase(concurrency=3, per_key=2)
    def run(job: object) -> None: ...

    def limits() -> tuple[int | None, int | None]:
        return definitions.load_controls(queue.store).limits_of("both", pipeline.plan.first)

    queue.serve(pipeline)
    queue.set_limit(pipeline, "run", per_key=1)
    assert limits() == (3, 1)
    queue.add_many(pipeline, range(10), limit_key="k")
    assert len(queue.claim(pipeline, limit=10)) == 1
    queue.set_limit(pipeline, "run", concurrency=5)
    assert limits() == (5, 1)
    queue.set_limit(pipeline, "run", per_key=None)
    assert limits() == (5, None)
    assert len(queue.claim(pipeline, limit=10)) == 4
    queue.reset_limit(pipeline, "run")
    assert limits() == (3, 2)
    with pytest.raises(BadInput, match="at least one limit"):
        queue.set_limit(pipeline, "run")


def test_a_lowered_limit_lets_the_running_ones_finish_first(queue: Queue) -> None:
    pipeline = limited(3, [])
    queue.serve(pipeline)
    queue.add_many(pipeline, range(10))
    held = list(queue.claim(pipeline, limit=3))
    assert len(held) == 3
    queue.set_limit(pipeline, "run", concurrency=1)
    for lease in held:
        assert len(queue.claim(pipeline)) == 0
        lease.complete()
    assert len(queue.claim(pipeline, limit=3)) == 1


def test_a_limit_per_key_counts_each_key_separately(queue: Queue) -> None:
    keyed = Pipeline("keyed")

    @keyed.phase(per_key=1)
    def run(job: object) -> None: ...

    queue.serve(keyed)
    for key in ("a", "a", "b", "b", ""):
        queue.add(keyed, limit_key=key)
    queue.add(keyed)
    first = list(queue.claim(keyed, limit=10))
    assert sorted(lease.task.limit_key for lease in first) == ["", "", "a", "b"]
    queue.set_limit(keyed, "run", per_key=2)
    assert sorted(lease.task.limit_key for lease in queue.claim(keyed, limit=10)) == ["a", "b"]


def test_a_limited_phase_continues_as_soon_as_a_slot_is_free(queue: Queue) -> None:
    pipeline = limited(1, [])
    tasks = queue.add_many(pipeline, range(20))
    with working(queue, pipeline, interval=60):
        until(lambda: all(queue.get(task.task_id).ended for task in tasks))
