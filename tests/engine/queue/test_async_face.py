"""The async methods: the same operations without blocking the event loop."""

import asyncio

import pytest

from onerow import BadInput, Pipeline, Queue, Status

posts = Pipeline("posts")


@posts.phase
def tag(job: object) -> None: ...


def test_every_async_method_does_the_same_as_its_sync_counterpart(queue: Queue) -> None:
    queue.serve(posts)

    async def main() -> None:
        task = await queue.add_async(posts, {"n": 1}, user_id="u1", priority=3)
        assert await queue.get_async(task.task_id) == task
        assert (task.user_id, task.priority, task.payload) == ("u1", 3, {"n": 1})
        many = await queue.add_many_async(posts, range(3), limit_key="k")
        assert [each.payload for each in many] == [0, 1, 2]
        assert (await queue.signal_async(task.task_id, "go", 5, by="kim")).signals[0]["payload"] == 5
        cancelled = await queue.cancel_async(task.task_id, by="kim")
        assert (cancelled.status, cancelled.history[-1].by) == (Status.CANCELLED, "kim")
        (lease,) = queue.claim(posts, ids=[many[0].task_id])
        lease.fail("broken", retry=False)
        assert (await queue.retry_async(many[0].task_id)).status is Status.WAITING

    asyncio.run(main())


def test_errors_are_raised_to_the_caller(queue: Queue) -> None:
    with pytest.raises(BadInput, match="priority"):
        asyncio.run(queue.add_async(posts, priority=500))


def test_concurrent_adds_are_all_stored(queue: Queue) -> None:
    async def main() -> None:
        await asyncio.gather(*(queue.add_async(posts, {"n": n}) for n in range(50)))

    asyncio.run(main())
    assert [tally.count for tally in queue.count()] == [50]


def test_a_queue_for_one_user_is_scoped_in_async_methods_too(queue: Queue) -> None:
    task = asyncio.run(queue.for_user("ann").add_async(posts))
    assert task.user_id == "ann"
    with pytest.raises(BadInput):
        asyncio.run(queue.for_user("bob").get_async(task.task_id))
