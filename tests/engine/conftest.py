"""Queues for the tests of the engine: on the memory store and on SQLite."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from onerow import Queue
from onerow.stores.memory import MemoryStore
from onerow.stores.sqlite import SqliteStore


@pytest.fixture(params=["memory", "sqlite"])
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Queue]:
    """A queue with nothing in it, once on each of the two stores that need no server."""
    opened = Queue(MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "onerow.db"))
    yield opened
    opened.close()


@pytest.fixture
def sqlite_queue(sqlite_url: str) -> Iterator[Queue]:
    """A queue in a file, for what memory can't do."""
    opened = Queue(sqlite_url)
    yield opened
    opened.close()
