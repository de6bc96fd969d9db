"""The pull API: leases for code that is not a handler."""

import contextlib
import time
from datetime import timedelta

import pytest

from onerow import LeaseLost, Permanent, Pipeline, Queue, RateLimited, Status
from onerow.core.filters import Filter
from onerow.core.status import PROCESSING
from tests.engine.kit import history_of, until

posts = Pipeline("posts")


@posts.phase(retry=2)
def tag(job: object) -> None: ...


@posts.phase
def publish(job: object) -> None: ...


@pytest.fixture(autouse=True)
def served(queue: Queue) -> None:
    queue.publish(posts)


def test_a_claim_returns_due_tasks_in_order(queue: Queue) -> None:
    second, first = queue.add(posts, 2), queue.add(posts, 1, priority=-1)
    queue.add(posts, 3, run_at="2035-01-01T00:00:00Z")
    leases = queue.claim("posts", "tag", limit=10, worker="w")
    assert [lease.task.task_id for lease in leases] == [first.task_id, second.task_id]
    assert [lease.payload for lease in leases] == [1, 2]
    stored = queue.get(first.task_id)
    assert (stored.status, stored.leased_by, stored.token, stored.attempt) == (Status.PROCESSING, "w", 1, 1)
    assert leases[0].token == 1


def test_a_claim_by_ids_returns_the_due_ones(queue: Queue) -> None:
    tasks = queue.add_many(posts, range(5))
    asked = [tasks[3].task_id, tasks[1].task_id, "unknown"]
    assert [lease.payload for lease in queue.claim(posts, limit=10, ids=asked)] == [1, 3]


def test_complete_advances_to_the_next_phase_or_completes_the_task(queue: Queue) -> None:
    task = queue.add(posts)
    queue.claim(posts)[0].complete({"tags": ["sea"]})
    assert (queue.get(task.task_id).status, queue.get(task.task_id).phase) == (Status.WAITING, "publish")
    assert len(queue.claim(posts, "tag")) == 0
    queue.claim(posts, "publish")[0].complete("url")
    done = queue.get(task.task_id)
    assert (done.status, done.results) == (Status.COMPLETED, {"tag": {"tags": ["sea"]}, "publish": "url"})
    assert history_of(done) == [("advanced", "tag"), ("completed", "publish")]


def test_fail_retries_later_until_the_retry_budget_is_used_up(queue: Queue) -> None:
    task = queue.add(posts)
    for number in range(3):
        (lease,) = queue.claim(posts)
        after = lease.fail(ConnectionError("no net"))
        if number < 2:
            assert (after.status, after.retry_count, after.error_class) == (Status.WAITING, number + 1, "network")
            assert after.run_at > queue.store.now()
            queue.reschedule(task.task_id, queue.store.now())
    assert after.status is Status.FAILED


def test_fail_without_retry_and_permanent_errors_fail_at_once(queue: Queue) -> None:
    queue.add_many(posts, range(2))
    first, second = queue.claim(posts, limit=2)
    assert first.fail("broken", retry=False).status is Status.FAILED
    after = second.fail(Permanent("no such topic"))
    assert (after.status, after.error, after.error_class) == (Status.FAILED, "no such topic", "permanent")


def test_fail_with_rate_limited_waits_for_the_given_time(queue: Queue) -> None:
    queue.add(posts)
    after = queue.claim(posts)[0].fail(RateLimited("10m"))
    assert after.run_at - queue.store.now() > timedelta(minutes=9)
    assert after.error_class == "limit"


def test_snooze_uses_up_no_retry(queue: Queue) -> None:
    queue.add(posts)
    after = queue.claim(posts)[0].snooze("1h")
    assert (after.status, after.retry_count) == (Status.WAITING, 0)
    assert after.run_at - queue.store.now() > timedelta(minutes=59)


def test_hand_back_uses_up_no_retry(queue: Queue) -> None:
    task = queue.add(posts)
    after = queue.claim(posts)[0].hand_back()
    assert (after.status, after.attempt, after.retry_count, after.run_at) == (Status.WAITING, 0, 0, task.run_at)


def test_a_lease_can_be_settled_once(queue: Queue) -> None:
    queue.add(posts)
    (lease,) = queue.claim(posts)
    done = lease.complete()
    for again in (lease.complete, lease.hand_back, lambda: lease.fail("x"), lambda: lease.snooze(1)):
        with pytest.raises(LeaseLost):
            again()
    assert queue.get(done.task_id) == done


def test_extend_makes_the_lease_longer(queue: Queue) -> None:
    queue.add(posts)
    (lease,) = queue.claim(posts, lease_for="1s")
    before = queue.get(lease.task.task_id).leased_until
    after = lease.extend("1h").leased_until
    assert before is not None
    assert after is not None
    assert after - before > timedelta(minutes=59)
    lease.complete()


def test_extend_shows_a_cancel_request_and_the_task_ends_cancelled(queue: Queue) -> None:
    queue.add(posts)
    (lease,) = queue.claim(posts)
    assert queue.cancel(lease.task.task_id).status is PROCESSING
    assert not lease.cancel_requested
    assert lease.extend().cancel_requested
    assert lease.complete("kept").status is Status.CANCELLED
    assert queue.get(lease.task.task_id).results == {"tag": "kept"}


def test_a_cancel_that_the_holder_never_saw_still_ends_the_task_cancelled(queue: Queue) -> None:
    queue.add(posts)
    (lease,) = queue.claim(posts)
    queue.cancel(lease.task.task_id)
    assert lease.fail(ConnectionError("no net")).status is Status.CANCELLED


@pytest.mark.parametrize("act", ["complete", "fail", "snooze", "cancel", "skip", "hand_back", "extend"])
def test_a_lost_lease_changes_nothing(queue: Queue, act: str) -> None:
    task = queue.add(posts)
    (lost,) = queue.claim(posts, lease_for="100ms")
    until(lambda: (queue.get(task.task_id).leased_until or queue.store.now()) < queue.store.now())
    queue.rescue()
    (mine,) = queue.claim(posts)
    before = queue.get(task.task_id)
    with pytest.raises(LeaseLost, match="lease"):
        getattr(lost, act)(*(["x"] if act == "fail" else [1] if act == "snooze" else []))
    assert queue.get(task.task_id) == before
    assert mine.complete("right").results == {"tag": "right"}


@pytest.mark.parametrize("act", ["complete", "fail", "extend"])
def test_a_holder_of_a_purged_task_cannot_change_a_new_task_with_the_same_id(queue: Queue, act: str) -> None:
    queue.add(posts, "old", task_id="again")
    (lost,) = queue.claim(posts, lease_for="100ms")
    until(lambda: (queue.get("again").leased_until or queue.store.now()) < queue.store.now())
    queue.rescue()
    queue.cancel("again")
    until(lambda: queue.purge(older_than="0s") == 1)
    queue.add(posts, "new", task_id="again")
    (held,) = queue.claim(posts)
    assert held.token > lost.token
    with pytest.raises(LeaseLost):
        getattr(lost, act)(*(["too late"] if act == "fail" else []))
    held.complete()
    task = queue.get("again")
    assert (task.payload, task.phase, task.status) == ("new", "publish", Status.WAITING)


def test_an_expired_lease_that_was_not_rescued_can_still_be_settled(queue: Queue) -> None:
    queue.add(posts)
    (lease,) = queue.claim(posts, lease_for="100ms")
    until(lambda: (queue.get(lease.task.task_id).leased_until or queue.store.now()) < queue.store.now())
    assert lease.complete().phase == "publish"


def test_a_context_manager_extends_its_leases(queue: Queue) -> None:
    task = queue.add(posts)
    with queue.claim(posts, lease_for="300ms") as leases:
        begun = queue.store.now()
        until(lambda: queue.store.now() - begun > timedelta(seconds=1))
        queue.rescue()
        assert queue.get(task.task_id).status is Status.PROCESSING
        leases[0].complete()
    assert queue.get(task.task_id).phase == "publish"


def test_unsettled_tasks_are_handed_back_at_the_end_of_the_block(queue: Queue) -> None:
    tasks = queue.add_many(posts, range(3))
    with contextlib.suppress(RuntimeError), queue.claim(posts, limit=3) as leases:
        leases[0].complete()
        raise RuntimeError
    assert [queue.get(task.task_id).phase for task in tasks] == ["publish", "tag", "tag"]
    assert {queue.get(task.task_id).status for task in tasks} == {Status.WAITING}
    assert queue.count(Filter(statuses=frozenset({PROCESSING}))) == []


def test_a_result_that_json_cannot_represent_is_refused_and_the_lease_is_kept(queue: Queue) -> None:
    queue.add(posts)
    (lease,) = queue.claim(posts)
    with pytest.raises(ValueError, match="result"):
        lease.complete({"n": float("inf")})
    assert lease.complete(1).results == {"tag": 1}


def test_a_claim_without_due_tasks_returns_an_empty_block_at_once(queue: Queue) -> None:
    start = time.monotonic()
    with queue.claim(posts) as leases:
        assert len(leases) == 0
        assert list(leases) == []
    assert time.monotonic() - start < 30
