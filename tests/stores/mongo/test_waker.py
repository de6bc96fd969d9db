"""Wake-ups by the change stream of a replica set, with the transitions of the conformance suite."""

from collections.abc import Iterator
from contextlib import closing

import pymongo
import pytest

from onerow.ports import Lease, Waker
from onerow.stores.mongo import MongoStore
from tests.conformance.kit import HOUR, claim_one, put, stored, swap
from tests.conformance.test_waking import LONG, QUIET_FOR, SILENT, WAKING, prepared, quiet
from tests.engine.kit import until
from tests.stores.mongo.commands import Document, recorded


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


def test_a_waker_wakes_when_its_stream_was_reopened(store: MongoStore, mongo_replica_set_url: str) -> None:
    """There may have been changes while no stream was open, and a new stream does not report them."""
    with recorded(mongo_replica_set_url) as (elsewhere, sent), closing(elsewhere.waker()) as waker:
        put(store)
        assert waker.wait(LONG), "the stream reports inserts"
        quiet(waker)
        with pymongo.MongoClient[Document](mongo_replica_set_url) as client:
            client.drop_database(client.get_default_database())  # this ends every stream of the database
        until(lambda: reads_of_streams(sent)[1:], "the first read of the next stream")
        assert waker.wait(0), "it is notified before the first read"


def reads_of_streams(sent: list[Document]) -> list[int]:
    """Return how often each change stream was read, for those that were read at all; a resumed one is not a new one."""
    reads: list[int] = []
    for command in list(sent):
        if "aggregate" in command and command["pipeline"][0] == {"$changeStream": {}}:
            reads.append(0)
        elif "getMore" in command and reads:
            reads[-1] += 1
    return [count for count in reads if count]
