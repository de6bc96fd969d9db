"""Retention by status and pipeline, with workers, on every store."""

import threading
from datetime import timedelta
from pathlib import Path

import pytest

from onerow import Addition, Context, Filter, Pipeline, Queue, TaskCompleted, UnknownName
from onerow.core.errors import BadStoreUrl, StoreUnavailable
from onerow.core.retention import parse_keep
from onerow.core.status import COMPLETED, FAILED
from onerow.engine.queue.adding import add_children
from onerow.engine.queue.retention_sweep import RetentionSweeper
from onerow.ports import Move, SwapAnswer
from tests.engine.kit import PATIENCE, everything, until, work, working


def pipeline(name: str = "tags", **options: object) -> Pipeline:
    tags: Pipeline = Pipeline(name, **options)  # type: ignore[call-overload]

    @tags.phase(retry=0)
    def tag(job: object, ctx: Context) -> object:
        if job == "fail":
            raise ValueError("no")
        if job == "print":
            ctx.log("output")
        return {"tags": ["조수"]}

    return tags


def ids(queue: Queue) -> set[str]:
    return {task.task_id for task in everything(queue)}


def sweep(queue: Queue) -> int:
    return RetentionSweeper(queue).delete_some()


def test_completed_tasks_are_deleted_at_their_end(queue: Queue) -> None:
    tags = pipeline(keep={"completed": "0s"})
    seen: list[str] = []
    queue.on(TaskCompleted, lambda event: seen.append(event.task.task_id))
    for name in ("a", "print", "fail"):
        queue.add(tags, name, task_id=name)
    remembered = queue.add(tags, 1, unique="k", unique_for="1h")
    unique = queue.add(tags, 1, unique="free")
    work(queue, tags)
    assert ids(queue) - {remembered.task_id} == {"fail"}
    assert queue.get("fail").status is FAILED
    assert queue.store.read_log("print").lines == []
    assert {"a", "print", unique.task_id, remembered.task_id} <= set(seen)
    assert queue.add(tags, 1, unique="k").task_id == remembered.task_id
    assert queue.add(tags, 1, task_id="a", unique="free").task_id == "a"


def test_wait_returns_the_outcome_without_the_result(queue: Queue) -> None:
    go = threading.Event()
    tags = Pipeline("tags", keep={"completed": "0s"})

    @tags.phase()
    def tag(job: object) -> str:
        assert go.wait(PATIENCE)
        return "result"

    task = queue.add(tags)
    with working(queue, tags):
        until(lambda: queue.get(task.task_id).status == "processing")
        threading.Timer(0.2, go.set).start()
        done = queue.wait(task.task_id, timeout=PATIENCE)
        assert (done.task_id, done.status, done.results) == (task.task_id, COMPLETED, {})
        # Also if it is gone before the wait begins.
        assert queue.wait(task, timeout=PATIENCE).status is COMPLETED
        with pytest.raises(UnknownName):
            queue.wait(task.task_id, timeout=PATIENCE)


def test_a_task_that_was_deleted_by_hand_is_not_taken_for_completed(queue: Queue) -> None:
    tags = pipeline()
    queue.publish(tags)
    task = queue.add(tags)
    queue.store.remove([task])
    with pytest.raises(UnknownName):
        queue.wait(task, timeout=PATIENCE)


def test_a_failed_task_that_is_not_stored_either_is_not_taken_for_completed(queue: Queue) -> None:
    tags = pipeline(keep="0s")
    failed = queue.add(tags, "fail")
    work(queue, tags)
    while ids(queue):
        sweep(queue)
    with pytest.raises(UnknownName, match="removed before it was seen to end"):
        queue.wait(failed, timeout=PATIENCE)


def test_children_stay_until_their_parent_has_ended(queue: Queue) -> None:
    tags = pipeline(keep={"completed": "0s"})
    albums = Pipeline("albums", keep={"completed": "0s"})

    @albums.phase()
    def spawn(job: object, ctx: Context) -> list[object]:
        ctx.spawn(tags, [1, 2])
        ctx.join()
        return [child.result for child in ctx.children()]

    got: list[object] = []
    queue.on(TaskCompleted, lambda event: got.append(event.task.results.get("spawn")))
    queue.add(albums, task_id="album")
    with working(queue, albums, tags):
        until(lambda: not queue.find(Filter(pipeline="albums")).tasks)
    assert [{"tags": ["조수"]}] * 2 in got
    sweep(queue)  # unless the worker's own sweep was first
    assert ids(queue) == set()


def test_a_pulled_task_is_deleted_at_its_end(queue: Queue) -> None:
    tags = pipeline(keep={"completed": "0s"})
    queue.publish(tags)
    queue.add(tags, task_id="a")
    queue.add(tags, task_id="b")
    for lease in queue.claim(tags, limit=2):
        if lease.task.task_id == "a":
            assert lease.complete({"tags": []}).status is COMPLETED
        else:
            lease.snooze("1h")
    assert ids(queue) == {"b"}


def test_a_lost_answer_to_a_deletion_is_a_success(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row is gone and the worker does not know whether it deleted it; the task has not been lost."""
    tags = pipeline(keep={"completed": "0s"})
    store = queue.store
    swap = store.settle_and_claim
    lost: list[int] = []
    seen: list[str] = []
    queue.on(TaskCompleted, lambda event: seen.append(event.task.task_id))

    def once_without_an_answer(moves: list[Move], claim: object) -> tuple[list[SwapAnswer], list[object]]:
        done = swap(moves, claim)  # type: ignore[arg-type]
        if moves and not lost:
            lost.append(1)
            raise StoreUnavailable("the answer is lost")
        return done  # type: ignore[return-value]

    monkeypatch.setattr(store, "settle_and_claim", once_without_an_answer)
    queue.add(tags, task_id="a")
    with working(queue, tags):
        until(lambda: seen)
    assert (lost, seen, ids(queue)) == ([1], ["a"], set())


def test_each_status_and_pipeline_has_its_own_age(queue: Queue) -> None:
    queue._keep = parse_keep({"completed": "0s"})
    # A child is not deleted at its end, so that the sweep is what deletes it.
    short, long = pipeline("short", keep={"failed": "0s"}), pipeline("long", keep="90d")
    for each in (short, long):
        for job in ("ok", "fail"):
            add_children(queue, each, [Addition(job, task_id=f"{each.name}-{job}")], "gone", None)
    work(queue, short, long)
    sweep(queue)  # unless the worker's own sweep was first
    assert ids(queue) == {"long-ok", "long-fail"}
    assert sweep(queue) == 0


def test_a_sweep_deletes_small_batches_and_looks_only_at_what_is_new(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onerow.engine.queue.retention_sweep._BATCH", 10)
    monkeypatch.setattr("onerow.engine.queue.retention_sweep._OVERLAP", timedelta(0))
    queue._keep = parse_keep({"cancelled": "0s"})
    tags = pipeline()
    queue.publish(tags)
    for task in queue.add_many(tags, list(range(25))):
        queue.cancel(task.task_id)
    sweeper = RetentionSweeper(queue)
    assert [sweeper.delete_some() for _ in range(4)] == [10, 10, 5, 0]
    (swept,) = sweeper._swept_to.values()
    queue.cancel(queue.add(tags).task_id)
    assert sweeper.delete_some() == 1
    assert [at >= swept for at in sweeper._swept_to.values()] == [True]


def test_a_worker_sweeps(queue: Queue) -> None:
    tags = pipeline(keep={"cancelled": "0s"})
    queue.publish(tags)
    task = queue.add(tags, run_at="2030-01-01T00:00:00Z")
    queue.cancel(task.task_id)
    with working(queue, tags):
        until(lambda: not everything(queue))


def test_retention_of_the_settings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONEROW_STORE", raising=False)
    settings = tmp_path / "onerow.toml"
    settings.write_text('store = "sqlite:///a.db"\nkeep = { completed = "0s", failed = "90d" }\n', encoding="utf-8")
    from onerow.wiring import Queue

    tags = pipeline()
    monkeypatch.setattr("onerow.wiring._callers_project", lambda file: tmp_path)
    for queue, left in ((Queue(), 0), (Queue("sqlite:///a.db"), 0), (Queue(keep={"completed": "1d"}), 1)):
        queue.add(tags)
        work(queue, tags)
        assert len(everything(queue)) == left
        queue.close()
    settings.write_text('keep = { done = "7d" }\n', encoding="utf-8")
    with pytest.raises(BadStoreUrl, match="'done' is not the status of ended tasks"):
        Queue("sqlite:///a.db").retention  # noqa: B018
