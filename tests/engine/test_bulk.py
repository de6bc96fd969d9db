"""Bulk operations on all matching tasks: counted first, at a limited rate, with a record of who asked."""

import inspect
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from onerow import BadInput, Filter, Permanent, Pipeline, Retry, Status, Task, TaskCancelled, UnknownName
from onerow.cli.main import COMMANDS
from onerow.engine.queue import bulk
from onerow.engine.queue.bulk import Selection
from onerow.engine.queue.progress import Progress
from onerow.engine.queue.queue import Queue
from onerow.stores.sqlite import SqliteStore
from tests.conformance.stores import Clock
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


def test_a_bulk_operation_records_the_number_of_matches_and_who_asked(queue: Queue) -> None:
    pipeline = posts()
    queue.add_many(pipeline, range(450), user_id="ann")
    queue.add_many(pipeline, range(3), user_id="bob")
    chosen = queue.select(Filter(user_id="ann"))
    assert len(chosen) == 450
    result = chosen.cancel(by="eve", note="spring cleaning")
    assert (result.matched, result.done, result.refused, result.whole) == (450, 450, 0, True)
    assert statuses(queue) == {Status.CANCELLED: 450, Status.WAITING: 3}
    entry = queue.find(Filter(user_id="ann")).tasks[0].history[-1]
    assert (entry.what, entry.by, entry.note) == ("cancel", "eve", "spring cleaning")
    (record,) = bulk.records(queue)
    assert record == result


def test_a_selection_iterates_over_all_matching_tasks_newest_first(queue: Queue) -> None:
    queue.add_many(posts(), range(450), user_id="ann")
    queue.add_many(posts(), range(3), user_id="bob")
    found = [task.payload for task in queue.select(Filter(user_id="ann"))]
    assert found == sorted(range(450), reverse=True)


def test_failed_tasks_are_retried_in_bulk_with_a_policy(queue: Queue) -> None:
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
    result = queue.retry_failed(Filter(pipeline="posts"), policy=policy)
    assert (result.matched, result.done, result.refused) == (4, 0, 4)  # the network failures were already retried once
    result = queue.retry_failed(Filter(pipeline="posts"), policy=Retry(2, wait="1h", classes={"timeout": True}))
    assert (result.matched, result.done, result.refused) == (4, 2, 2)
    assert len(queue.claim(pipeline, limit=4)) == 0
    assert statuses(queue) == {Status.WAITING: 2, Status.FAILED: 2}


def test_failed_tasks_are_retried_in_bulk(queue: Queue) -> None:
    queue.add_many(posts(), range(20))
    with working(queue, posts(broken=True)):
        until(lambda: statuses(queue) == {Status.FAILED: 20})
    queue.pipelines.clear()
    assert queue.retry_failed(Filter(error_class="network")).done == 0
    result = queue.retry_failed(Filter(pipeline="posts", error_class="permanent"), by="ann")
    assert result.done == 20
    with working(queue, posts()):
        until(lambda: statuses(queue) == {Status.COMPLETED: 20})


def test_every_operation_can_be_done_in_bulk(queue: Queue) -> None:
    pipeline = Pipeline("posts")
    pipeline.wait_for("approval", signal="go")
    pipeline.phase(name="tag")(lambda job: None)
    queue.publish(pipeline)
    queue.add_many(pipeline, range(4))
    everything = queue.select()
    later = queue.store.now() + timedelta(hours=1)
    assert everything.set_priority(-5).done == 4
    assert everything.reschedule("+2h").done == 4
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


def test_tasks_that_an_operation_does_not_apply_to_are_refused_and_listed(queue: Queue) -> None:
    good, other = queue.add_many(posts(), range(2))
    queue.cancel(other.task_id)
    result = queue.select().cancel()
    assert (result.done, result.refused) == (1, 1)
    ((task_id, why),) = result.problems
    assert task_id == other.task_id
    assert "only waiting or failed tasks can be cancelled" in why
    assert queue.get(good.task_id).status is Status.CANCELLED


def test_a_unique_key_that_is_now_taken_refuses_only_its_task(queue: Queue) -> None:
    tasks = [queue.add(posts(), unique=f"k{n}") for n in range(3)]
    with working(queue, posts(broken=True)):
        until(lambda: statuses(queue) == {Status.FAILED: 3})
    holder = queue.add(posts(), unique="k1")
    result = queue.retry_failed()
    assert (result.done, result.refused) == (2, 1)
    assert result.problems[0][0] == tasks[1].task_id
    assert holder.task_id in result.problems[0][1]


def test_a_pace_limits_the_rate_and_progress_is_reported(queue: Queue) -> None:
    queue.add_many(posts(), range(6))
    reported: list[Progress] = []
    began = time.monotonic()
    result = queue.select(WAITING).cancel(pace="50/s", progress=reported.append)
    assert time.monotonic() - began >= 5 / 50
    assert result.done == 6
    assert reported[-1] == result


def test_a_limit_leaves_the_other_tasks_unchanged(queue: Queue) -> None:
    queue.add_many(posts(), range(10))
    result = queue.select(WAITING).cancel(limit=4)
    assert (result.matched, result.done, result.whole) == (10, 4, False)
    assert statuses(queue) == {Status.CANCELLED: 4, Status.WAITING: 6}
    with pytest.raises(BadInput):
        queue.select(WAITING).cancel(limit=0)


def test_an_interrupted_operation_leaves_a_record_of_its_progress(queue: Queue) -> None:
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


def test_an_operation_stops_when_it_is_asked_to_and_says_who_asked(queue: Queue) -> None:
    queue.add_many(posts(), range(10))
    chosen = queue.select(WAITING)
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 14:  # in the second minute of waiting
            (under_way,) = queue.bulk_operations()
            assert (under_way.done, under_way.ended_at) == (2, "")
            queue.stop_bulk(under_way.name, by="kim")

    chosen._sleep = sleep
    result = chosen.cancel(pace="1/min", by="ann")
    assert len(slept) == 14  # it does not wait for its next task
    (record,) = queue.bulk_operations()
    assert record == result
    assert (record.done, record.whole, record.by, record.stopped_by) == (2, False, "ann", "kim")
    assert statuses(queue) == {Status.CANCELLED: 2, Status.WAITING: 8}
    assert queue.store.notes(bulk.STOP) == []
    with pytest.raises(BadInput, match="has ended"):
        queue.stop_bulk(record.name)
    with pytest.raises(UnknownName, match="no operation"):
        queue.stop_bulk("x")
    with pytest.raises(BadInput, match="one user"):
        queue.for_user("ann").bulk_operations()


def test_an_operation_whose_process_was_silent_for_a_minute_is_shown_as_interrupted(tmp_path: Path) -> None:
    clock = Clock()
    with closing(Queue(SqliteStore(str(tmp_path / "q.db"), clock=clock))) as queue:
        queue.add_many(posts(), range(2))
        chosen = queue.select(WAITING)
        seen: list[bool] = []

        def sleep(seconds: float) -> None:
            clock.forward(timedelta(seconds=seconds))
            seen.append(queue.bulk_operations()[0].interrupted)
            if len(seen) == 20:  # the machine was suspended: the clock moved, the process wrote nothing
                clock.forward(timedelta(minutes=2))
                (record,) = queue.bulk_operations()
                assert record.interrupted
                with pytest.raises(BadInput, match="was interrupted"):
                    queue.stop_bulk(record.name)

        chosen._sleep = sleep
        chosen.cancel(pace="1/h")
        assert len(seen) == 720
        assert set(seen) == {False}  # a long wait for the pace is no silence
        (record,) = queue.bulk_operations()
        assert (record.whole, record.interrupted) == (True, False)


def test_a_fast_operation_stops_between_two_pages(queue: Queue) -> None:
    queue.add_many(posts(), range(450))

    asked: list[str] = []

    def each(task: Any, error: Exception | None) -> None:
        if not asked:
            asked.append(queue.bulk_operations()[0].name)
            queue.stop_bulk(asked[0], by="kim")
            time.sleep(1.1)  # an operation looks for such a request about once a second

    result = queue.select(WAITING).cancel(each=each)
    assert (result.done, result.stopped_by, result.whole) == (200, "kim", False)


def test_a_queue_for_one_user_changes_only_that_users_tasks(queue: Queue) -> None:
    queue.add_many(posts(), range(3), user_id="ann")
    queue.add_many(posts(), range(2), user_id="bob")
    assert queue.for_user("ann").select().cancel().done == 3
    assert statuses(queue) == {Status.CANCELLED: 3, Status.WAITING: 2}


def test_hooks_are_called_for_each_task(queue: Queue) -> None:
    heard: list[str] = []
    queue.on(TaskCancelled, lambda event: heard.append(event.task.task_id))
    tasks = queue.add_many(posts(), range(3))
    queue.select().cancel()
    assert sorted(heard) == sorted(task.task_id for task in tasks)


def test_tasks_are_selected_by_ids_and_each_result_is_reported(queue: Queue) -> None:
    one, two, three = queue.add_many(posts(), range(3))
    queue.cancel(two.task_id)
    seen: list[tuple[str, str]] = []

    def each(task: Any, error: Exception | None) -> None:
        seen.append((task.task_id, task.status if error is None else type(error).__name__))

    chosen = queue.select(ids=[three.task_id, two.task_id, three.task_id])
    assert [task.task_id for task in chosen] == [three.task_id, two.task_id]
    result = chosen.cancel(each=each)
    assert (result.matched, result.done, result.refused, result.whole) == (2, 1, 1, True)
    assert seen == [(three.task_id, "cancelled"), (two.task_id, "IllegalMove")]
    assert queue.get(one.task_id).status is Status.WAITING
    assert bulk.records(queue) == []  # a record is kept of operations on queries only


def test_an_unknown_id_or_another_users_id_changes_no_task(queue: Queue) -> None:
    mine, other = queue.add(posts(), 1, user_id="ann"), queue.add(posts(), 2, user_id="bob")
    for scope, ids in ((queue, [mine.task_id, "missing"]), (queue.for_user("ann"), [mine.task_id, other.task_id])):
        with pytest.raises(BadInput, match="no task"):
            scope.select(ids=ids).cancel()
    assert statuses(queue) == {Status.WAITING: 2}
    with pytest.raises(BadInput, match="not both"):
        queue.select(WAITING, ids=[mine.task_id])


def test_a_queue_a_selection_and_the_command_line_have_the_same_operations() -> None:
    """Every operation on one task exists for many tasks and as a command."""
    operations = {
        name
        for name, method in vars(Queue).items()
        if inspect.isfunction(method)
        and not name.startswith("_")
        and list(inspect.signature(method).parameters)[1:2] == ["task_id"]
        and inspect.signature(method).return_annotation is Task  # not those that read
        and not inspect.iscoroutinefunction(method)
    }
    assert operations >= {
        "cancel",
        "fail",
        "retry",
        "replay",
        "finish",
        "reschedule",
        "set_priority",
        "signal",
        "annotate",
    }
    assert operations <= {name for name in vars(Selection) if not name.startswith("_")}
    assert {name.replace("_", "-") for name in operations} <= set(COMMANDS)
    for name in operations:
        of_one = set(inspect.signature(getattr(Queue, name)).parameters) - {"self", "task_id", "retry_count"}
        assert of_one <= set(inspect.signature(getattr(Selection, name)).parameters), name
