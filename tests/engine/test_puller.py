"""Long-running pulls without a worker: leases are extended, and tasks of dead holders are rescued."""

from datetime import timedelta

import pytest

from onerow import BadInput, LeaseLost, Pipeline, Queue, Status, TaskRescued
from onerow.core import rules
from onerow.engine.queue.compare_and_swap import operate
from onerow.engine.queue.puller import LONG_DEAD
from onerow.engine.views import Views
from onerow.ports import Note
from tests.engine.kit import history_of, until

posts = Pipeline("posts")
others = Pipeline("others")


@posts.phase(retry=0)
def publish(job: object) -> None: ...


@others.phase(retry=0, name="publish")
def publish_others(job: object) -> None: ...


def run_out(queue: Queue, task_id: str) -> None:
    """Wait until the lease on a task has ended."""
    until(lambda: (queue.get(task_id).leased_until or queue.store.now()) < queue.store.now())


def test_rescue_takes_a_task_from_a_dead_holder_that_can_then_change_nothing(queue: Queue) -> None:
    task = queue.add(posts)
    (lost,) = queue.claim(posts, lease_for="100ms", worker="gone")
    run_out(queue, task.task_id)
    heard: list[str] = []
    queue.on(TaskRescued, lambda event: heard.append(event.worker))
    (back,) = queue.rescue("posts", by="ann")
    assert (back.status, back.rescue_count, back.crash_count, back.token) == (Status.WAITING, 1, 0, lost.token + 1)
    assert (back.history[-1].what, back.history[-1].by) == ("rescued", "ann")
    assert heard == ["gone"]
    with pytest.raises(LeaseLost):
        lost.complete()
    assert queue.rescue("posts") == []


def test_rescue_skips_extended_leases_and_those_that_ended_recently(queue: Queue) -> None:
    alive, late = queue.add(posts, 1), queue.add(posts, 2)
    queue.claim(posts, ids=[alive.task_id], lease_for="1h")
    queue.claim(posts, ids=[late.task_id], lease_for="100ms")
    run_out(queue, late.task_id)
    assert queue.rescue(ended_for="1h") == []
    assert [task.task_id for task in queue.rescue()] == [late.task_id]
    assert queue.get(alive.task_id).status is Status.PROCESSING


def test_rescue_is_limited_to_its_pipeline_phase_and_user(queue: Queue) -> None:
    mine = queue.add(posts, user_id="ann")
    theirs, other = queue.add(posts, user_id="bob"), queue.add(others, user_id="ann")
    for pipeline in (posts, others):
        queue.claim(pipeline, limit=2, lease_for="100ms")
    for task in (mine, theirs, other):
        run_out(queue, task.task_id)
    assert queue.rescue("posts", "another") == []
    assert [task.task_id for task in queue.for_user("ann").rescue("posts", "publish")] == [mine.task_id]
    assert {task.task_id for task in queue.rescue()} == {theirs.task_id, other.task_id}


def test_a_puller_extends_all_its_leases_over_many_claims(queue: Queue) -> None:
    tasks = queue.add_many(posts, range(3))
    with queue.puller(posts, lease_for="300ms", worker="me") as puller:
        first = puller.claim(1)
        first += puller.claim(2)
        begun = queue.store.now()
        until(lambda: queue.store.now() - begun > timedelta(seconds=1))
        assert queue.rescue() == []
        assert set(puller.held) == {task.task_id for task in tasks}
        assert {task.leased_by for task in queue.find().tasks} == {"me"}
        first[0].complete("done")
        assert set(puller.held) == {lease.task.task_id for lease in first[1:]}
    assert [task.status for task in queue.find(order="oldest").tasks].count(Status.WAITING) == 2


def test_a_puller_uses_the_lease_of_the_phase_and_claims_nothing_once_closed(queue: Queue) -> None:
    patient = Pipeline("patient")
    patient.phase(name="wait", lease="1h")(lambda job: None)
    queue.add(patient)
    puller = queue.puller(patient)
    (lease,) = puller.claim()
    assert lease.task.leased_until is not None
    assert lease.task.leased_until - queue.store.now() > timedelta(minutes=59)
    puller.close()
    with pytest.raises(BadInput, match="closed"):
        puller.claim()


def test_a_puller_sees_a_cancel_request_and_a_task_handed_back_ends_cancelled(queue: Queue) -> None:
    task = queue.add(posts)
    with queue.puller(posts, lease_for="300ms") as puller:
        (lease,) = puller.claim()
        queue.cancel(task.task_id)
        until(lambda: lease.cancel_requested)
    assert queue.get(task.task_id).status is Status.CANCELLED


def test_a_puller_drops_lost_leases(queue: Queue) -> None:
    task = queue.add(posts)
    with queue.puller(posts, lease_for="300ms") as puller:
        (lease,) = puller.claim()
        operate(queue.store, task.task_id, lambda held: rules.rescue(held, queue.store.now()))
        until(lambda: not puller.held)
        assert lease.lost
    assert queue.get(task.task_id).status is Status.WAITING


def test_a_puller_rescues_tasks_after_observing_the_store_for_a_lease(queue: Queue) -> None:
    task = queue.add(posts)
    queue.claim(posts, lease_for="200ms", worker="gone")
    run_out(queue, task.task_id)
    with queue.puller(posts, lease_for="1s") as puller:
        assert puller.claim() == []  # the store may have just become available again
        (lease,) = until(puller.claim)
        assert lease.task.task_id == task.task_id
        lease.complete()
    assert history_of(queue.get(task.task_id)) == [("rescued", "publish"), ("completed", "publish")]


def test_a_puller_that_claims_rarely_still_observes_the_store(queue: Queue) -> None:
    task = queue.add(posts)
    queue.claim(posts, lease_for="100ms", worker="gone")
    run_out(queue, task.task_id)
    with queue.puller(posts, lease_for="200ms") as puller:
        assert puller.claim() == []
        begun = queue.store.now()
        until(lambda: queue.store.now() - begun > timedelta(seconds=1))
        assert [lease.task.task_id for lease in puller.claim()] == [task.task_id]


def test_a_short_lived_puller_rescues_leases_that_ended_long_ago(queue: Queue) -> None:
    task = queue.add(posts)
    queue.claim(posts, lease_for="100ms")
    run_out(queue, task.task_id)

    def at_once() -> bool:
        with queue.puller(posts, lease_for="100ms") as puller:
            return bool(puller.claim())

    assert not at_once()
    until(at_once)
    ended = queue.get(task.task_id).history[0].at
    started = queue.get(task.task_id).created_at
    assert ended > f"{started + LONG_DEAD * timedelta(milliseconds=100):%Y-%m-%dT%H:%M:%S}"


def test_a_remembered_value_is_available_to_the_next_attempt(queue: Queue) -> None:
    task = queue.add(posts)
    (first,) = queue.claim(posts, lease_for="100ms")
    assert first.recall("intent") is None
    first.remember("intent", {"to": "채널", "emoji": "🗞️"})
    first.remember("intent", {"to": "둘째"})
    assert first.recall("intent") == {"to": "둘째"}
    run_out(queue, task.task_id)
    queue.rescue()
    with pytest.raises(LeaseLost):
        first.remember("intent", "too late")
    (second,) = queue.claim(posts)
    assert second.recall("intent") == {"to": "둘째"}
    assert second.idempotency_key == first.idempotency_key
    queue.serve(posts)
    second.complete()
    with pytest.raises(LeaseLost):
        second.remember("intent", "settled")
    queue.replay(task.task_id)
    (again,) = queue.claim(posts)
    assert again.recall("intent") is None
    assert again.idempotency_key != first.idempotency_key


def test_remember_works_concurrently_with_the_heartbeat(queue: Queue) -> None:
    queue.add(posts)
    with queue.puller(posts, lease_for="100ms") as puller:
        (lease,) = puller.claim()
        for number in range(30):
            lease.remember(f"n{number}", number)
        assert [lease.recall(f"n{number}") for number in range(30)] == list(range(30))
        done = lease.complete()
    assert len(done.steps["publish"]) == 30


@pytest.mark.parametrize("name", ["", "wait:x", "join"])
def test_a_reserved_name_is_refused(queue: Queue, name: str) -> None:
    queue.add(posts)
    (lease,) = queue.claim(posts)
    with pytest.raises(ValueError, match="named"):
        lease.remember(name, 1)


def test_a_puller_is_registered_while_it_is_open_and_counts_as_serving_its_phase(queue: Queue) -> None:
    queue.publish(posts)
    views = Views(queue)
    task = queue.add(posts, priority=5)
    reason = views.why(task.task_id)
    assert reason.code == "no-worker"
    with queue.puller("posts", "publish", lease_for="1h") as puller:
        puller.claim(ids=["none"])
        until(lambda: views.workers(), "the registration")
        [line] = views.workers()
        assert (line.name, line.puller, line.alive, line.phases) == (puller.worker, True, True, [("posts", "publish")])
        assert views.why(task.task_id).code != "no-worker"
        [lane] = [lane for pipeline in views.board().pipelines for lane in pipeline.lanes]
        assert lane.workers == 1
    assert views.workers() == []


def test_a_puller_does_not_count_as_serving_phases_without_code(queue: Queue) -> None:
    films = Pipeline("films")
    films.wait_until("start", field="at")
    films.phase(name="publish")(len)
    queue.publish(films)
    views = Views(queue)
    task = queue.add(films, {"at": "2020-01-01T00:00:00Z"})
    with queue.puller(films, "publish") as puller:
        puller.claim()
        until(lambda: views.workers(), "the registration")
        assert views.why(task.task_id).code == "no-worker"


def test_entries_of_pullers_that_ended_long_ago_are_removed_and_those_of_workers_stay(queue: Queue) -> None:
    store = queue.store
    store.write_notes([Note("worker", "old-puller", {"kind": "puller"}, 0), Note("worker", "old-worker", {}, 0)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("onerow.engine.queue.puller._FORGOTTEN_AFTER", timedelta(0))
        until(
            lambda: store.now() > max(note.updated_at or store.now() for note in store.notes("worker")), "a later time"
        )
        with queue.puller(posts, "publish") as puller:
            puller.claim()
            names = {"old-worker", puller.worker}
            until(lambda: {line.name for line in Views(queue).workers()} == names, "the removal")
