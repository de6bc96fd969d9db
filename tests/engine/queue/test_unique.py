"""Unique keys: one open task per pipeline, user and key; the key may be held after the end."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from onerow import KeyTaken, Pipeline, Queue, Status, Task, TaskAdded, UnknownName
from onerow.core.filters import Filter
from onerow.core.times import to_millis
from onerow.stores.memory import MemoryStore
from onerow.stores.sqlite import SqliteStore
from tests.engine.kit import work

posts = Pipeline("posts")
clips = Pipeline("clips")


@posts.phase
@clips.phase
def tag(job: object) -> None: ...


class Clock:
    """A clock that a test can advance."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def __call__(self) -> datetime:
        return to_millis(datetime.now(UTC) + self.ahead)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "sqlite"])
def queue(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Queue]:
    store = MemoryStore(clock) if request.param == "memory" else SqliteStore(tmp_path / "onerow.db", clock=clock)
    opened = Queue(store)
    yield opened
    opened.close()


def complete(queue: Queue, task: Task) -> None:
    (lease,) = queue.claim(posts, ids=[task.task_id])
    lease.complete()


def test_adding_a_taken_key_returns_the_existing_task(queue: Queue) -> None:
    queue.publish(posts)
    first = queue.add(posts, {"n": 1}, unique="k")
    assert queue.add(posts, {"n": 2}, unique="k") == first
    assert queue.add_many(posts, [3, 4], unique="k") == [first, first]
    assert [tally.count for tally in queue.count()] == [1]


def test_add_new_returns_none_if_the_key_is_taken(queue: Queue) -> None:
    heard: list[str] = []
    queue.on(TaskAdded, lambda event: heard.append(event.task.task_id))
    first = queue.add_new(posts, 1, unique="a", unique_for="forever", title="하나")
    assert first is not None
    assert (first.payload, first.title, first.unique_for) == (1, "하나", "forever")
    assert queue.add_new(posts, 2, unique="a") is None
    assert queue.add_new(posts, 2, task_id=first.task_id) is None
    assert queue.add_new(posts, 2, unique="b") is not None
    assert heard == [task.task_id for task in queue.find(order="oldest").tasks]
    assert queue.get(first.task_id) == first


def test_the_key_is_separate_for_each_pipeline_and_user(queue: Queue) -> None:
    tasks = [
        queue.add(posts, unique="k"),
        queue.add(clips, unique="k"),
        queue.add(posts, unique="k", user_id="ann"),
        queue.add(posts, unique="K"),
        queue.add(posts),
        queue.add(posts),
    ]
    assert len({task.task_id for task in tasks}) == 6


@pytest.mark.parametrize("end", ["complete", "cancel", "fail"])
def test_a_key_is_free_when_its_task_has_ended(queue: Queue, end: str) -> None:
    queue.serve(posts)
    first = queue.add(posts, unique="k")
    match end:
        case "complete":
            complete(queue, first)
        case "cancel":
            queue.cancel(first.task_id)
        case "fail":
            queue.claim(posts)[0].fail("no", retry=False)
    assert queue.get(first.task_id).ended
    assert queue.add(posts, unique="k").task_id != first.task_id


def test_a_key_for_seven_days_is_remembered_for_seven_days_after_the_end(queue: Queue, clock: Clock) -> None:
    queue.serve(posts)
    first = queue.add(posts, unique="k", unique_for="7d")
    clock.ahead = timedelta(days=30)  # counted from the end of the task, not from its start
    assert queue.add(posts, unique="k").task_id == first.task_id
    complete(queue, first)
    clock.ahead = timedelta(days=36, hours=23)
    assert queue.add(posts, unique="k").task_id == first.task_id
    clock.ahead = timedelta(days=37, hours=1)
    second = queue.add(posts, unique="k")
    assert second.task_id != first.task_id
    assert queue.get(first.task_id).held_key is None
    assert queue.add(posts, unique="k") == second


def test_a_key_held_forever_outlives_the_task_and_its_purge(queue: Queue, clock: Clock) -> None:
    queue.serve(posts)
    first = queue.add(posts, {"secret": 1}, unique="k", unique_for="forever", title="t", metadata={"m": 1})
    complete(queue, first)
    clock.ahead = timedelta(days=4000)
    assert queue.purge(older_than="30d") == 1
    with pytest.raises(UnknownName):
        queue.get(first.task_id)
    assert queue.count() == []
    assert queue.add(posts, unique="k").task_id == first.task_id
    assert queue.count() == []


def test_a_tombstone_keeps_only_its_keys(queue: Queue, clock: Clock) -> None:
    queue.serve(posts)
    first = queue.add(posts, {"secret": 1}, unique="k", unique_for="7d", title="t", metadata={"m": 1})
    complete(queue, first)
    clock.ahead = timedelta(days=1)
    queue.purge(older_than=0)
    (left,) = queue.store.find(Filter(hidden=True)).tasks
    assert (left.task_id, left.unique_key, left.held_key, left.status) == (first.task_id, "k", "k", "completed")
    assert (left.payload, left.title, left.metadata, left.results, left.history) == (None, "", {}, {}, [])


def test_a_tombstone_frees_its_key_in_time_and_is_removed_by_a_sweep(queue: Queue, clock: Clock) -> None:
    queue.serve(posts)
    first = queue.add(posts, unique="k", unique_for="7d")
    other = queue.add(posts, unique="other", unique_for="7d")
    complete(queue, first)
    complete(queue, other)
    clock.ahead = timedelta(days=1)
    assert queue.purge(older_than=0) == 2
    clock.ahead = timedelta(days=8)
    assert queue.add(posts, unique="k").task_id != first.task_id
    queue.pause(posts)
    work(queue)
    assert [task.status for task in queue.store.find(Filter(hidden=True)).tasks] == [Status.WAITING]


def test_no_operation_applies_to_a_tombstone(queue: Queue, clock: Clock) -> None:
    queue.serve(posts)
    first = queue.add(posts, unique="k", unique_for="forever")
    queue.claim(posts)[0].fail("no", retry=False)
    clock.ahead = timedelta(days=1)
    queue.purge(older_than=0)
    for act in (queue.retry, queue.cancel, queue.replay, queue.finish, queue.logs):
        with pytest.raises(UnknownName):
            act(first.task_id)


def test_a_retry_or_replay_whose_key_is_now_taken_is_refused_with_the_holders_id(queue: Queue) -> None:
    queue.serve(posts)
    first = queue.add(posts, unique="k")
    queue.claim(posts)[0].fail("no", retry=False)
    second = queue.add(posts, unique="k")
    for act in (queue.retry, queue.replay):
        with pytest.raises(KeyTaken) as refused:
            act(first.task_id)
        assert refused.value.other_id == second.task_id
        assert second.task_id in str(refused.value)
    assert queue.get(first.task_id).status is Status.FAILED


def test_a_retried_task_holds_its_key_again(queue: Queue) -> None:
    queue.serve(posts)
    first = queue.add(posts, unique="k")
    queue.claim(posts)[0].fail("no", retry=False)
    queue.retry(first.task_id)
    assert queue.add(posts, unique="k").task_id == first.task_id
