"""Children: spawned once, waited for together, cancelled with their parent."""

from datetime import timedelta
from typing import Any

import pytest

from onerow import Addition, AsyncContext, ChildrenFailed, Context, Permanent, Pipeline, Retry, Status, Task
from onerow.core.filters import Filter
from onerow.engine.events.events import Events
from onerow.engine.queue.children import Children
from onerow.engine.queue.queue import Queue
from onerow.engine.worker.roles import children
from onerow.engine.worker.roles.sweeps import WaitPhaseSweeper
from onerow.ports import Page
from onerow.stores.memory import MemoryStore
from tests.conformance.stores import Entry
from tests.engine.conftest import ended, parked, until, working
from tests.samples import a_task

QUICK = Retry(3, wait="10ms", jitter=0)


def tracks() -> Pipeline:
    pipeline = Pipeline("tracks")

    @pipeline.phase
    def mix(job: Any) -> Any:
        if job == "bad":
            raise Permanent("no such track")
        return f"mixed {job}"

    return pipeline


def children_of(queue: Queue, task_id: str) -> list[Any]:
    found, after = [], None
    while True:
        page = queue.find(Filter(parent_id=task_id), limit=500, order="oldest", after=after)
        found += page.tasks
        if (after := page.next) is None:
            return found


def test_a_parent_resumes_when_all_children_have_ended(queue: Queue) -> None:
    songs = tracks()
    albums = Pipeline("albums")

    @albums.phase
    def press(job: Any, ctx: Context) -> Any:
        ctx.spawn(songs, job["songs"], title="a song")
        tally = ctx.join()
        return [tally.total, tally.completed, tally.failed, {child.payload: child.result for child in ctx.children()}]

    with working(queue, albums, songs):
        task = ended(queue, queue.add(albums, {"songs": ["a", "b", "bad"]}, user_id="u1").task_id)
    assert task.result == [3, 2, 1, {"a": "mixed a", "b": "mixed b", "bad": None}]
    assert task.children == 3
    found = children_of(queue, task.task_id)
    assert {(child.user_id, child.title, child.parent_id) for child in found} == {("u1", "a song", task.task_id)}


def test_an_async_parent_awaits_its_children(queue: Queue) -> None:
    songs = tracks()
    albums = Pipeline("albums")

    @albums.phase
    async def press(job: Any, ctx: AsyncContext) -> Any:
        assert await ctx.spawn(songs, (name for name in "ab")) == 2
        await ctx.join()
        return sorted([child.result async for child in ctx.children()])

    with working(queue, albums, songs):
        task = ended(queue, queue.add(albums).task_id)
    assert task.result == ["mixed a", "mixed b"]


def test_a_wait_phase_waits_for_the_children_and_counts_them(queue: Queue) -> None:
    songs = tracks()
    albums = Pipeline("albums")

    @albums.phase
    def split(job: Any, ctx: Context) -> None:
        ctx.spawn(songs, ["a", "bad"])

    albums.wait_children("mixed")

    @albums.phase
    def press(job: Any, mixed: Any) -> Any:
        return mixed

    with working(queue, albums, songs):
        task = ended(queue, queue.add(albums).task_id)
    assert task.result == {"total": 2, "completed": 1, "failed": 1, "cancelled": 0}


def test_a_child_that_fails_fails_a_parent_whose_children_must_all_succeed(queue: Queue) -> None:
    songs = tracks()
    albums, singles = Pipeline("albums"), Pipeline("singles")

    @albums.phase
    def split(job: Any, ctx: Context) -> None:
        ctx.spawn(songs, ["a", "bad"])

    albums.wait_children("mixed", all_must_succeed=True)

    @singles.phase
    def press(job: Any, ctx: Context) -> Any:
        ctx.spawn(songs, ["bad"])
        try:
            ctx.join(all_must_succeed=True)
        except ChildrenFailed as error:
            raise Permanent(f"so: {error}") from None

    with working(queue, albums, singles, songs):
        album = ended(queue, queue.add(albums).task_id)
        single = ended(queue, queue.add(singles).task_id)
    assert (album.status, album.error) == (Status.FAILED, "1 of 2 children of mixed did not complete")
    assert (single.status, single.error) == (Status.FAILED, "so: 1 of 1 children of press did not complete")


def test_a_parent_without_children_does_not_wait(queue: Queue) -> None:
    songs = tracks()
    albums = Pipeline("albums")

    @albums.phase
    def split(job: Any, ctx: Context) -> int:
        ctx.spawn(songs, [])
        return ctx.join().total

    albums.wait_children("mixed")
    with working(queue, albums, songs):
        task = ended(queue, queue.add(albums).task_id)
    assert (task.results["split"], task.results["mixed"]["total"]) == (0, 0)


def test_a_repeated_spawn_adds_nothing(queue: Queue) -> None:
    songs = tracks()
    albums = Pipeline("albums")

    @albums.phase(retry=QUICK)
    def press(job: Any, ctx: Context) -> Any:
        def names() -> Any:
            for number in range(700):
                if number == 600 and ctx.attempt == 1:
                    raise ConnectionError("in the midst of a spawn")
                yield f"s{number}"

        count = ctx.spawn(songs, names())
        count += ctx.spawn(songs, [Addition("extra", title="bonus")], name="extra")
        if ctx.attempt == 2:
            raise ConnectionError("after it")
        return [count, ctx.join().total]

    with working(queue, albums, songs):
        task = ended(queue, queue.add(albums).task_id)
    assert task.result == [701, 701]
    assert len(children_of(queue, task.task_id)) == 701


def test_children_with_keys_may_be_spawned_in_another_order(queue: Queue) -> None:
    songs = tracks()
    albums = Pipeline("albums")

    @albums.phase(retry=QUICK)
    def press(job: Any, ctx: Context) -> Any:
        def names() -> Any:
            yield from ["a", "b"] if ctx.attempt == 1 else ["c", "b", "a"]
            if ctx.attempt == 1:
                raise ConnectionError("before it was whole")

        def all_at_once() -> Any:
            return list(names()) if ctx.attempt > 1 else names()

        ctx.spawn(songs, all_at_once(), key=lambda name: name)
        ctx.join()
        return sorted(child.payload for child in ctx.children())

    with working(queue, albums, songs):
        task = ended(queue, queue.add(albums).task_id)
    assert task.result == ["a", "b", "c"]


def test_a_child_whose_unique_key_another_task_holds_is_not_waited_for(queue: Queue) -> None:
    songs = Pipeline("songs")
    songs.wait_for("mixed", signal="never")
    albums = Pipeline("albums")

    @albums.phase
    def press(job: Any, ctx: Context) -> Any:
        count = ctx.spawn(
            songs, [Addition("a", unique="held"), Addition("b", unique="new"), Addition("c", unique="new")]
        )
        queue.cancel(children_of(queue, ctx.task_id)[0].task_id)
        return [count, ctx.join().total]

    held = queue.add(songs, "held", unique="held")
    with working(queue, albums, songs):
        task = ended(queue, queue.add(albums).task_id)
    assert (task.result, task.children) == ([1, 1], 1)
    assert queue.get(held.task_id).awaiting == "signal:never"


def test_children_with_the_same_key_are_one_child(queue: Queue) -> None:
    songs = tracks()
    albums = Pipeline("albums")

    @albums.phase
    def press(job: Any, ctx: Context) -> Any:
        count = ctx.spawn(songs, [f"song {number}" for number in range(600)], key=lambda song: song[-1])
        return [count, ctx.join().total]

    with working(queue, albums, songs):
        task = ended(queue, queue.add(albums).task_id)
    assert (task.result, task.children) == ([10, 10], 10)


def test_a_retried_parent_resumes_with_the_children_that_were_not_purged(queue: Queue) -> None:
    songs = tracks()
    albums = Pipeline("albums")

    @albums.phase
    def press(job: Any, ctx: Context) -> Any:
        ctx.spawn(songs, ["a", "b"])
        total = ctx.join().total
        if total == 2:
            raise Permanent("not today")
        return total

    with working(queue, albums, songs):
        task = ended(queue, queue.add(albums).task_id)
        first, _ = children_of(queue, task.task_id)
        assert queue.store.remove([first]) == 1
        queue.retry(task.task_id)
        until(lambda: queue.get(task.task_id).status is Status.COMPLETED)
    assert queue.get(task.task_id).result == 1


def test_cancelling_a_parent_cancels_its_children_and_theirs(queue: Queue) -> None:
    songs = Pipeline("songs")
    parts = Pipeline("parts")

    @parts.phase
    def play(job: Any, ctx: Context) -> None:
        ctx.wait("never")

    @songs.phase
    def mix(job: Any, ctx: Context) -> None:
        ctx.spawn(parts, [1, 2])
        ctx.join()

    albums = Pipeline("albums")

    @albums.phase
    def press(job: Any, ctx: Context) -> None:
        ctx.spawn(songs, ["a", "b"])
        ctx.join()

    with working(queue, albums, songs, parts):
        task_id = queue.add(albums).task_id
        until(lambda: len(queue.find(Filter(awaiting="signal:never")).tasks) == 4)
        until(lambda: len(queue.find(Filter(awaiting="children")).tasks) == 3)
        queue.cancel(task_id)
        until(lambda: all(task.status is Status.CANCELLED for task in queue.find(Filter()).tasks))
    assert len(queue.find(Filter()).tasks) == 7


def test_children_spawned_during_the_cancellation_of_their_parent_are_cancelled(queue: Queue) -> None:
    songs = Pipeline("songs")
    songs.wait_for("mixed", signal="never")
    albums = Pipeline("albums")

    @albums.phase
    def press(job: Any, ctx: Context) -> None:
        def names() -> Any:
            yield from range(500)
            queue.cancel(ctx.task_id)
            yield from range(500, 1200)

        ctx.spawn(songs, names())

    with working(queue, albums, songs):
        task = ended(queue, queue.add(albums).task_id)
        assert task.status is Status.CANCELLED
        until(lambda: {child.status for child in children_of(queue, task.task_id)} == {Status.CANCELLED})


def test_children_inherit_their_parents_priority_by_default(queue: Queue) -> None:
    songs = tracks()
    albums = Pipeline("albums")

    @albums.phase
    def press(job: Any, ctx: Context) -> None:
        ctx.spawn(songs, ["a", Addition("b", priority=7)])

    with working(queue, albums, songs):
        task = ended(queue, queue.add(albums, priority=-3).task_id)
    assert {child.payload: child.priority for child in children_of(queue, task.task_id)} == {"a": -3, "b": 7}


def test_a_child_ended_manually_resumes_its_parent(queue: Queue) -> None:
    songs = Pipeline("songs")
    songs.wait_for("mixed", signal="never")
    albums = Pipeline("albums")

    @albums.phase
    def press(job: Any, ctx: Context) -> Any:
        ctx.spawn(songs, ["a", "b"])
        return ctx.join().cancelled

    with working(queue, albums, songs):
        task_id = queue.add(albums).task_id
        parked(queue, task_id, "children")
        one, two = children_of(queue, task_id)
        queue.finish(one.task_id)
        assert queue.get(task_id).awaiting == "children"
        queue.cancel(two.task_id)
        assert ended(queue, task_id).result == 1


def test_a_parent_left_waiting_by_a_dead_worker_is_resumed(queue: Queue) -> None:
    songs = tracks()
    albums = Pipeline("albums")

    @albums.phase
    def press(job: Any, ctx: Context) -> Any:
        ctx.spawn(songs, ["a"])
        return ctx.join().completed

    with working(queue, albums, songs, phases=["press"]):
        task_id = queue.add(albums).task_id
        parked(queue, task_id, "children")
    # As if the worker had died after the child ended and before it resumed the parent.
    (lease,) = queue.claim(songs)
    lease.complete("by hand")
    with working(queue, albums, songs):
        assert ended(queue, task_id).result == 1


def test_a_replayed_parent_gets_new_children_and_ignores_the_old_ones(queue: Queue) -> None:
    songs = tracks()
    albums = Pipeline("albums")

    @albums.phase
    def press(job: Any, ctx: Context) -> Any:
        ctx.spawn(songs, ["a", "b"])
        return ctx.join().total

    with working(queue, albums, songs):
        task = ended(queue, queue.add(albums).task_id)
        queue.replay(task.task_id)
        again = ended(queue, task.task_id)
    assert (again.result, again.generation) == (2, 1)
    assert len(children_of(queue, task.task_id)) == 4


def test_children_are_purged_only_after_their_parent_ended(queue: Queue) -> None:
    songs = tracks()
    albums = Pipeline("albums")

    @albums.phase
    def press(job: Any, ctx: Context) -> None:
        ctx.spawn(songs, ["a"])
        ctx.join()
        ctx.wait("go")

    with working(queue, albums, songs):
        task_id = queue.add(albums).task_id
        parked(queue, task_id, "signal:go")
        assert queue.purge(older_than=0) == 0
        queue.signal(task_id, "go")
        ended(queue, task_id)
    until(lambda: queue.purge(older_than=timedelta(0)) or not children_of(queue, task_id))
    assert children_of(queue, task_id) == []


def test_a_tree_of_ten_thousand_children(queue: Queue, entry: Entry) -> None:
    size = 10_000 if entry.scales and "before" not in entry.name else 300
    songs = Pipeline("songs")

    @songs.phase
    def mix(job: Any) -> None: ...

    albums = Pipeline("albums")

    @albums.phase
    def press(job: Any, ctx: Context) -> Any:
        ctx.spawn(songs, range(size))
        return ctx.join().completed

    with working(queue, albums, songs):
        task = ended(queue, queue.add(albums).task_id)
    assert (task.result, task.children) == (size, size)


def test_a_slow_sweep_over_parked_tasks_runs_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(children, "monotonic", lambda: clock[0])

    class Slow(MemoryStore):
        takes = 0.0

        def find(self, where: Filter, **more: Any) -> Page:
            clock[0] += self.takes
            return super().find(where, **more)

    store = Slow()
    role = children.ChildrenSweeper(store, Children(store, lambda name: None, Events()), "w1")
    assert role.tick(store.now()) == 5
    clock[0] += 5
    store.takes = 1.5  # the sweep queries twice: for parents, and for cancelled ones
    assert role.tick(store.now()) == 60


def test_each_change_of_a_family_wakes_the_sweep() -> None:
    # Not only the first of several: the sweep may take them all before the second is there.
    store = MemoryStore()
    role = children.ChildrenSweeper(store, Children(store, lambda name: None, Events()), "w1")
    woken: list[bool] = []
    role.wake = lambda: woken.append(True)
    for _ in range(2):
        role.hear(a_task())
    assert len(woken) == 2


def test_children_may_start_after_a_delay(queue: Queue) -> None:
    songs, albums = tracks(), Pipeline("albums")

    @albums.phase
    def press(job: Any, ctx: Context) -> None:
        ctx.spawn(songs, ["a"], delay="10m")
        ctx.spawn(songs, [Addition("b", delay="10m")])

    with working(queue, albums, songs):
        task = ended(queue, queue.add(albums).task_id)
    found = children_of(queue, task.task_id)
    assert sorted(child.payload for child in found) == ["a", "b"]
    assert all(child.run_at >= task.created_at + timedelta(minutes=10) for child in found)


def test_a_task_that_begins_to_wait_for_children_is_looked_at_even_if_it_has_none() -> None:
    store = MemoryStore()
    parts = Pipeline("parts")
    parts.wait_until("start", field="at")
    parts.wait_children("gather")
    task = Queue(store).add(parts, {"at": store.now().isoformat()})
    sweeper = WaitPhaseSweeper(store, {"parts": parts.plan}, Events())
    heard: list[Task] = []
    sweeper.parent_or_child_changed = heard.append
    sweeper.tick(store.now())
    assert [(each.task_id, each.awaiting) for each in heard] == [(task.task_id, "children")]
