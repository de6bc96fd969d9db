"""The estimate of the server's clock: few queries, never ahead, independent of the local wall clock."""

import threading
import time
from datetime import UTC, datetime, timedelta

import pymongo
import pytest

from onerow.core.errors import StoreUnavailable
from onerow.stores.mongo import MongoStore
from onerow.stores.mongo.clock import ServerClock

EPOCH = datetime(2026, 11, 15, tzinfo=UTC)


class Server:
    """A server whose clock the test sets."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)
        self.asked = 0
        self.away, self.back = threading.Event(), threading.Event()
        self._began = time.monotonic()

    def __call__(self) -> datetime:
        self.asked += 1
        if self.away.is_set():
            self.back.wait(30)
            raise StoreUnavailable("away")
        return self.now()

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=time.monotonic() - self._began) + self.ahead


def test_the_clock_is_never_ahead_of_the_server_and_at_most_a_second_behind(store: MongoStore, mongo_url: str) -> None:
    with pymongo.MongoClient[dict[str, datetime]](mongo_url, tz_aware=True) as client:
        for _ in range(20):
            answer = store.now()
            (row,) = client.get_default_database().aggregate([{"$documents": [{"now": "$$NOW"}]}])
            assert answer <= row["now"] <= store.now() + timedelta(seconds=1)


def test_the_clock_rarely_queries_the_server(store: MongoStore) -> None:
    store.now()
    seen = store.count_statements()
    for _ in range(1_000):
        store.now()
    assert seen() == 0


def test_the_clock_is_monotonic() -> None:
    clock = ServerClock(Server())
    answer = [clock() for _ in range(2_000)]
    assert answer == sorted(answer)


def test_the_clock_follows_when_the_server_clock_is_set() -> None:
    server = Server()
    clock = ServerClock(server)
    clock()
    for ahead in (timedelta(hours=-1), timedelta(hours=3)):
        server.ahead = ahead
        clock.measure()
        assert abs(clock() - server.now()) < timedelta(seconds=1)
        assert clock() <= server.now()


def test_an_unavailable_server_does_not_block_the_clock() -> None:
    server = Server()
    clock = ServerClock(server)
    before = clock()
    server.away.set()
    for _ in range(3):
        clock._good_until = 0.0
        assert before <= clock() <= server.now()
    server.back.set()
    for thread in threading.enumerate():
        if thread.name == "onerow-mongo-clock":
            thread.join(10)
    assert server.asked > 8
    with pytest.raises(StoreUnavailable):
        ServerClock(server)()
