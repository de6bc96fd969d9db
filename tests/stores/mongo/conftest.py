"""Fixtures: a MongoDB store per test, and raw access to its documents."""

from collections.abc import Iterator
from typing import Any

import pymongo
import pytest
from pymongo.collection import Collection

from onerow.stores.mongo import MongoStore

Document = dict[str, Any]


@pytest.fixture
def store(mongo_url: str) -> Iterator[MongoStore]:
    """An empty, migrated store that uses the server's clock."""
    found = MongoStore(mongo_url)
    found.prepare()
    yield found
    found.close()


@pytest.fixture
def documents(mongo_url: str) -> Iterator[Collection[Document]]:
    """The task collection through a separate client."""
    with pymongo.MongoClient[Document](mongo_url, tz_aware=True) as client:
        yield client.get_default_database()["task_queue"]
