"""The estimate of the server's clock: few queries, never ahead, independent of the local wall clock."""

from datetime import datetime, timedelta

import pymongo

from onerow.stores.mongo import MongoStore


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
