"""Wake-ups by the change stream of a replica set, with the transitions of the conformance suite."""

from collections.abc import Iterator

import pytest

from onerow.ports import Lease, Waker
from onerow.stores.mongo import MongoStore
from tests.conformance.kit import HOUR, claim_one, put, stored, swap
from tests.conformance.test_waking import LONG, QUIET_FOR, SILENT, WAKING, prepared, quiet


@pytest.fixture
def store(mongo_replica_set_url: str) -> Iterator[MongoStore]:
    found = MongoStore(mongo_replica_set_url)
    found.prepare()
    yield found
    found.close()


@pytest.fixture
def waker(mongo_replica_set_url: str, store: MongoStore) -> Iterator[Waker]:
    """A waker of another process, which hears the change stream."""
    elsewhere = MongoStore(mongo_replica_set_url)
    found = elsewhere.waker()
    put(store, "first", phase="elsewhere")
    assert found.wait(LONG), "the stream reports inserts"
    quiet(found)
    yield found
    found.close()
    elsewhere.close()


@pytest.mark.parametrize("name", WAKING)
def test_another_process_is_woken_when(store: MongoStore, waker: Waker, name: str) -> None:
    before, after = prepared(store, WAKING[name])
    quiet(waker)
    swap(store, before, after)
    assert waker.wait(LONG)


@pytest.mark.parametrize("name", SILENT)
def test_another_process_is_not_woken_when(store: MongoStore, waker: Waker, name: str) -> None:
    before, after = prepared(store, SILENT[name])
    quiet(waker)
    swap(store, before, after)
    assert not waker.wait(QUIET_FOR)


def test_another_process_is_not_woken_by_heartbeats_and_claims(store: MongoStore, waker: Waker) -> None:
    put(store, "t1")
    put(store, "t2")
    task = claim_one(store)
    quiet(waker)
    store.extend([Lease(task.task_id, task.token)], HOUR)
    claim_one(store, slots=2)
    assert not waker.wait(QUIET_FOR)
    assert stored(store, "t1").version > task.version
