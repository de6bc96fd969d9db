"""Claims by task id with answers of True or False."""

from typing import Any

from onerow import Pipeline, Queue, Retry, Status
from tests.engine.kit import until

videos = Pipeline("videos")


@videos.phase(retry=Retry(2, wait="1h"))
async def encode(job: Any) -> Any:
    return job


def test_one_of_two_claims_succeeds_and_sets_the_lease(queue: Queue) -> None:
    queue.publish(videos)
    queue.add(videos, 1, task_id="v")
    with queue.claims_by_id(videos) as first, queue.claims_by_id("videos") as second:
        before = queue.store.now()
        assert [first.try_claim("v", "w1"), second.try_claim("v", "w2"), first.try_claim("v", "w1")] == [
            True,
            False,
            False,
        ]
        task = queue.get("v")
        assert (task.status, task.leased_by) == (Status.PROCESSING, "w1")
        assert task.leased_until is not None
        assert 14_300 < (task.leased_until - before).total_seconds() < 14_500
        assert first.complete("v", {"ok": True})
    assert queue.get("v").results == {"encode": {"ok": True}}


def test_tasks_that_do_not_wait_are_not_claimed(queue: Queue) -> None:
    queue.publish(videos)
    queue.add(videos, 1, task_id="done")
    queue.add(videos, 1, task_id="later", delay="1h")
    queue.add(videos, 1, task_id="cancelled")
    queue.finish("done")
    queue.cancel("cancelled")
    with queue.claims_by_id(videos) as claims:
        assert not any(claims.try_claim(task_id, "w") for task_id in ("missing", "done", "later", "cancelled"))
        assert not any(claims.mark_processing(task_id) for task_id in ("missing", "done", "later", "cancelled"))


def test_settling_what_is_not_held_changes_nothing(queue: Queue) -> None:
    queue.add(videos, 1, task_id="v")
    with queue.claims_by_id(videos) as holder, queue.claims_by_id(videos) as other:
        assert not other.complete("v")
        assert holder.mark_processing("v")
        before = queue.get("v")
        assert not other.complete("v")
        assert not other.fail("v", "no")
        assert queue.get("v") == before
        assert holder.complete("v")
        assert not holder.complete("v")
        assert not holder.fail("v", "late")
    assert queue.get("v").status is Status.COMPLETED


def test_a_cancelled_task_ends_when_its_holder_settles_it(queue: Queue) -> None:
    queue.add(videos, 1, task_id="v")
    claims = queue.claims_by_id(videos)
    assert claims.try_claim("v", "w", lease_seconds=3600)
    queue.cancel("v")
    assert claims.is_cancel_requested("v")
    claims.fail("v", "stopped")
    assert queue.get("v").status is Status.CANCELLED
    assert not claims.complete("v")
    claims.close()


def test_a_transient_failure_is_retried_by_the_queue_and_a_permanent_one_ends(queue: Queue) -> None:
    queue.add(videos, 1, task_id="again")
    queue.add(videos, 1, task_id="never")
    with queue.claims_by_id(videos) as claims:
        assert claims.try_claim("again", "w")
        assert claims.fail("again", ConnectionError("reset"))
        assert claims.try_claim("never", "w")
        assert claims.fail("never", "broken file", retry=False)
    assert (queue.get("again").status, queue.get("again").retry_count) == (Status.WAITING, 1)
    assert queue.get("never").status is Status.FAILED


def test_leases_are_extended_while_the_object_lives_and_returned_when_it_is_closed(queue: Queue) -> None:
    queue.add(videos, 1, task_id="v")
    claims = queue.claims_by_id(videos)
    assert claims.try_claim("v", "w", lease_seconds=0.6)
    first = queue.get("v").leased_until
    assert first is not None
    until(lambda: (queue.get("v").leased_until or first) > first, "an extension")
    assert not claims.is_cancel_requested("v")
    assert not claims.is_cancel_requested("missing")
    claims.close()
    assert queue.get("v").status is Status.WAITING
