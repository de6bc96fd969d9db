"""P13: a queue for one user reads and changes only that user's tasks, in every method."""

from collections.abc import Callable
from typing import Any

import pytest

from onerow import Addition, BadInput, Filter, Pipeline, Queue, Status, TaskAdded, TaskCompleted, UnknownName
from tests.engine.kit import work

posts = Pipeline("posts")


@posts.phase
def tag(job: object) -> None:
    print("a line")


posts.wait_for("ok", signal="ok")

ACTS: dict[str, Callable[[Queue, str], object]] = {
    "get": lambda queue, task_id: queue.get(task_id),
    "logs": lambda queue, task_id: queue.logs(task_id),
    "cancel": lambda queue, task_id: queue.cancel(task_id),
    "fail": lambda queue, task_id: queue.fail(task_id, "mine"),
    "retry": lambda queue, task_id: queue.retry(task_id),
    "replay": lambda queue, task_id: queue.replay(task_id),
    "finish": lambda queue, task_id: queue.finish(task_id),
    "reschedule": lambda queue, task_id: queue.reschedule(task_id, "2030-01-01T00:00:00Z"),
    "set_priority": lambda queue, task_id: queue.set_priority(task_id, 5),
    "signal": lambda queue, task_id: queue.signal(task_id, "ok"),
    "annotate": lambda queue, task_id: queue.annotate(task_id, {"mine": True}),
}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS.keys())
def test_a_task_of_another_user_looks_like_a_missing_task(queue: Queue, act: Callable[[Queue, str], object]) -> None:
    queue.serve(posts)
    task = queue.add(posts, {"secret": "s3cr3t"}, user_id="ann")
    for stranger in (queue.for_user("bob"), queue.for_user("")):
        with pytest.raises(UnknownName) as refused:
            act(stranger, task.task_id)
        with pytest.raises(UnknownName) as missing:
            act(stranger, "0" * len(task.task_id))
        assert str(refused.value).replace(task.task_id, "*") == str(missing.value).replace("0" * len(task.task_id), "*")
    assert queue.get(task.task_id) == task


def test_it_adds_only_for_its_user(queue: Queue) -> None:
    ann = queue.for_user("ann")
    assert ann.add(posts).user_id == "ann"
    assert ann.add(posts, user_id="ann").user_id == "ann"
    assert {task.user_id for task in ann.add_many(posts, [1, 2])} == {"ann"}
    for refused in (lambda: ann.add(posts, user_id="bob"), lambda: ann.add_many(posts, [1, 2], user_id="bob")):
        with pytest.raises(BadInput, match="for user"):
            refused()
    assert {task.user_id for task in queue.find(limit=100).tasks} == {"ann"}


def test_it_finds_and_counts_only_its_users_tasks(queue: Queue) -> None:
    mine = queue.for_user("ann").add_many(posts, range(3))
    queue.add_many(posts, range(5), user_id="bob")
    queue.add_many(posts, range(7))
    ann = queue.for_user("ann")
    assert {task.task_id for task in ann.find().tasks} == {task.task_id for task in mine}
    assert [tally.count for tally in ann.count()] == [3]
    assert [tally.count for tally in queue.for_user("").count()] == [7]
    assert [tally.count for tally in ann.count(Filter(user_id="ann"))] == [3]
    for look in (ann.find, ann.count):
        with pytest.raises(UnknownName):
            look(Filter(user_id="bob"))


def test_pages_contain_only_its_users_tasks(queue: Queue) -> None:
    for _ in range(5):
        queue.add(posts, user_id="ann")
        queue.add(posts, user_id="bob")
    ann = queue.for_user("ann")
    first = ann.find(limit=3)
    second = ann.find(limit=3, after=first.next)
    assert {task.user_id for task in [*first.tasks, *second.tasks]} == {"ann"}
    assert (len(first.tasks), len(second.tasks), second.next) == (3, 2, None)


def test_it_claims_only_its_users_tasks(queue: Queue) -> None:
    queue.serve(posts)
    theirs = queue.add(posts, user_id="bob", priority=-5)
    mine = queue.add(posts, user_id="ann")
    assert [lease.task.task_id for lease in queue.for_user("ann").claim(posts, limit=10)] == [mine.task_id]
    assert len(queue.for_user("ann").claim(posts, ids=[theirs.task_id])) == 0
    assert queue.get(theirs.task_id).status is Status.WAITING


def test_it_claims_a_due_task_behind_many_tasks_in_other_phases(queue: Queue) -> None:
    two = Pipeline("two")
    two.wait_until("when", field="at")
    two.phase(name="run")(tag)
    queue.serve(two)
    ann = queue.for_user("ann")
    ann.add_many(two, [{"n": n} for n in range(150)], run_at="2020-01-01T00:00:00Z")
    task = ann.add(two)
    queue.finish(task.task_id, phase_only=True)
    assert [lease.task.task_id for lease in ann.claim(two, "run")] == [task.task_id]


def test_it_purges_only_its_users_tasks(queue: Queue) -> None:
    for user in ("ann", "bob"):
        queue.cancel(queue.add(posts, user_id=user).task_id)
    assert queue.for_user("ann").purge(older_than=0) == 1
    assert [task.user_id for task in queue.find().tasks] == ["bob"]


@pytest.mark.parametrize(
    "act",
    [
        lambda queue: queue.pause(posts),
        lambda queue: queue.resume(posts),
        lambda queue: queue.set_limit(posts, "tag", concurrency=1),
        lambda queue: queue.reset_limit(posts, "tag"),
        lambda queue: queue.publish(posts),
    ],
    ids=["pause", "resume", "set_limit", "reset_limit", "publish"],
)
def test_it_cannot_change_settings_for_all_users(queue: Queue, act: Callable[[Queue], object]) -> None:
    with pytest.raises(BadInput, match="one user"):
        act(queue.for_user("ann"))
    assert [queue.store.notes(kind) for kind in ("pause", "limit", "pipeline")] == [[], [], []]


def test_its_hooks_get_only_its_users_events(queue: Queue) -> None:
    heard: list[str] = []
    ann = queue.for_user("ann")
    ann.on(TaskAdded, lambda event: heard.append(event.task.user_id))
    ann.on(TaskCompleted, lambda event: heard.append(event.task.user_id))
    for user in ("bob", "ann", ""):
        task = queue.add(posts, user_id=user)
        queue.signal(task.task_id, "ok")
    work(queue, posts)
    assert heard == ["ann", "ann"]


def test_its_unique_keys_are_separate_from_other_users(queue: Queue) -> None:
    one = queue.for_user("ann").add(posts, unique="k")
    other = queue.for_user("bob").add(posts, unique="k")
    assert one.task_id != other.task_id
    assert queue.for_user("ann").add(posts, unique="k") == one


def test_only_a_handler_makes_children(queue: Queue) -> None:
    """A parent counts, joins and cancels what `ctx.spawn` added; nothing else may name a parent."""
    parent = queue.add(posts)
    add: Any = queue.add
    with pytest.raises(TypeError, match="parent_id"):
        add(posts, parent_id=parent.task_id)
    addition: Any = Addition
    with pytest.raises(TypeError, match="parent_id"):
        addition(None, parent_id=parent.task_id)
