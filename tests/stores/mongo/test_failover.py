"""Failover of a replica set: workers continue, and no acknowledged write is lost."""

import contextlib
import threading
import time
from collections.abc import Iterator

import pymongo
import pytest

from onerow.core import rules
from onerow.core.errors import RetryTransaction, StoreUnavailable
from onerow.core.status import COMPLETED, PROCESSING
from onerow.core.task import Task
from onerow.ports import Lease, Move
from onerow.stores.mongo import MongoStore
from onerow.wiring import Queue
from tests.conformance.kit import MINUTE, claim, every_row, new, put, stored
from tests.servers.replica_set import MongoReplicaSet
from tests.stores.mongo.test_replica_set import Document
from tests.stores.mongo.test_worker import at_work, check, completed, counted, until

pytestmark = [pytest.mark.slow, pytest.mark.faults]

TIMEOUT = 120.0


@pytest.fixture
def url(own_replica_set: MongoReplicaSet) -> Iterator[str]:
    url = own_replica_set.fresh_database()
    yield url
    own_replica_set.drop_database(url)


@contextlib.contextmanager
def failover(replica_set: MongoReplicaSet, how: str) -> Iterator[None]:
    """Kill the primary, or make it step down; restart a killed member afterwards."""
    port = replica_set.primary()
    if how == "kill":
        replica_set.kill(port)
    else:
        replica_set.step_down()
    yield
    if how == "kill":
        replica_set.start(port)


@pytest.mark.parametrize("how", ["kill", "step down"])
def test_p1_a_worker_continues_with_the_next_primary(own_replica_set: MongoReplicaSet, url: str, how: str) -> None:
    queue = Queue(MongoStore(url))
    with at_work(queue):
        added = list(queue.add_many(counted, [{"n": n} for n in range(300)]))
        until(lambda: completed(queue.store) >= 40)
        with failover(own_replica_set, how):
            until(lambda: _added(queue, added))
            until(lambda: completed(queue.store) == 301)
    check(queue.store, added)
    queue.close()


def _added(queue: Queue, added: list[Task]) -> bool:
    """Add one more task; return False while there is no primary."""
    try:
        added.append(queue.add(counted, {"n": 1_000}, task_id="after"))
    except StoreUnavailable:
        return False
    return True


class Writer:
    """Adds, claims, extends and completes its own tasks, and records what was acknowledged."""

    def __init__(self, url: str, name: str) -> None:
        self._store = MongoStore(url)
        self._name = name
        self._done = threading.Event()
        self.added: set[str] = set()
        self.ended: set[str] = set()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._done.is_set():
            number += 1
            with contextlib.suppress(StoreUnavailable):
                self._write(f"{self._name}-{number}")

    def _write(self, task_id: str) -> None:
        store = self._store
        store.insert([new(store, task_id, pipeline=self._name)])
        self.added.add(task_id)
        if not (got := claim(store, 1, ids=[task_id], pipeline=self._name)):
            (row,) = store.fetch([task_id])
            assert row.status is PROCESSING, "only the answer of a claim that landed may be lost"
            return
        (held,) = got
        store.extend([Lease(task_id, held.token)], MINUTE)
        (row,) = store.fetch([task_id])
        store.swap([Move(row, rules.finish(row, '"done"', store.now()))])
        self.ended.add(task_id)

    def stop(self) -> None:
        self._done.set()
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive()
        self._store.close()


@pytest.mark.parametrize("how", ["kill", "step down"])
def test_p1_acknowledged_writes_survive_the_loss_of_the_primary(
    own_replica_set: MongoReplicaSet, url: str, how: str
) -> None:
    store = MongoStore(url)
    store.prepare()
    writers = [Writer(url, f"w{number}") for number in range(3)]
    until(lambda: all(len(writer.ended) >= 10 for writer in writers))
    with failover(own_replica_set, how):
        before = [len(writer.ended) for writer in writers]
        until(lambda: all(len(writer.ended) >= n + 10 for writer, n in zip(writers, before, strict=True)))
        for writer in writers:
            writer.stop()
    rows = every_row(store)
    for writer in writers:
        assert writer.added <= set(rows)
        for task_id in writer.ended:
            row = rows[task_id]
            assert (row.status, row.result, row.attempt) == (COMPLETED, "done", 1)
            assert [entry.what for entry in row.history] == ["completed"]
    store.close()


def test_a_waker_wakes_on_writes_of_the_next_primary(own_replica_set: MongoReplicaSet, url: str) -> None:
    store, elsewhere = MongoStore(url), MongoStore(url)
    store.prepare()
    waker = store.waker()
    put(elsewhere, "before")
    assert waker.wait(TIMEOUT)
    with failover(own_replica_set, "step down"):
        deadline = time.monotonic() + TIMEOUT
        while waker.wait(2):
            assert time.monotonic() < deadline
        put(elsewhere, "after")
        assert waker.wait(TIMEOUT)
    waker.close()
    elsewhere.close()
    store.close()


def test_a_step_down_in_a_transaction_raises_retry_transaction(own_replica_set: MongoReplicaSet, url: str) -> None:
    store = MongoStore(url)
    store.prepare()
    with pymongo.MongoClient[Document](url) as client, client.start_session() as session:
        session.start_transaction()
        store.insert([new(store, "t1")], tx=session)
        own_replica_set.step_down()
        own_replica_set.primary()
        with pytest.raises(RetryTransaction):
            store.insert([new(store, "t2")], tx=session)
        with contextlib.suppress(pymongo.errors.PyMongoError):
            session.abort_transaction()
        until(lambda: _in_one_transaction(store, client))
    assert {row.task_id for row in every_row(store).values()} == {"t1", "t2"}
    assert stored(store, "t1").version == 1
    store.close()


def _in_one_transaction(store: MongoStore, client: pymongo.MongoClient[Document]) -> bool:
    with client.start_session() as session:
        session.start_transaction()
        try:
            store.insert([new(store, "t1"), new(store, "t2")], tx=session)
            session.commit_transaction()
        except (RetryTransaction, StoreUnavailable, pymongo.errors.PyMongoError):
            return False
        return True
