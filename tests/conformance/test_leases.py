"""Lease records, which a rescuer observes, are the same in every store."""

from datetime import timedelta

from msgspec.structs import astuple

from onerow.core import rules
from onerow.ports import Held, Lease, Move, Store
from tests.conformance.kit import HOUR, MINUTE, claim, claim_one, put, put_many

NO_LEASE = Lease("-", 0)


def test_leases_are_those_of_processing_tasks_ordered_by_their_end(store: Store) -> None:
    put_many(store, 4)
    (last,) = claim(store, 1, worker="w1", lease_for=2 * HOUR)
    (first,) = claim(store, 1, worker="w2", lease_for=MINUTE)
    (middle,) = claim(store, 1, worker="w1", lease_for=HOUR)
    assert [astuple(record) for record in store.leases(limit=10)] == [
        (task.task_id, "videos", "script", 1, task.leased_by, task.leased_until) for task in (first, middle, last)
    ]
    assert [record.task_id for record in store.leases(limit=2)] == [first.task_id, middle.task_id]


def test_leases_can_be_filtered_by_pipeline_and_phase(store: Store) -> None:
    for name, pipeline, phase in (("a", "videos", "script"), ("b", "videos", "upload"), ("c", "posts", "script")):
        put(store, name, pipeline=pipeline, phase=phase)
        claim_one(store, pipeline=pipeline, phase=phase)

    def found(**where: str) -> set[str]:
        return {record.task_id for record in store.leases(limit=10, **where)}

    assert found() == {"a", "b", "c"}
    assert found(pipeline="videos") == {"a", "b"}
    assert found(pipeline="videos", phase="script") == {"a"}
    assert found(pipeline="videos", phase="none") == set()


def test_a_heartbeat_and_a_new_claim_change_the_lease(store: Store) -> None:
    put(store)
    held = claim_one(store)
    (before,) = store.leases(limit=10)
    (beat,) = store.extend([Lease("t1", held.token)], HOUR)
    assert isinstance(beat, Held)
    (extended,) = store.leases(limit=10)
    assert extended != before
    assert (extended.token, extended.leased_until) == (before.token, beat.leased_until)
    (mine,) = store.fetch(["t1"])
    store.swap([Move(mine, rules.rescue(mine, store.now()))])
    assert store.leases(limit=10) == []
    claim_one(store)
    (again,) = store.leases(limit=10)
    assert again.token == held.token + 2


def test_a_heartbeat_without_leases_changes_nothing(store: Store) -> None:
    """A rescuer sends one to find out whether heartbeats can be written now."""
    put(store)
    held = claim_one(store)
    store.extend([NO_LEASE], timedelta(seconds=1))
    assert store.fetch(["t1"]) == [held]
