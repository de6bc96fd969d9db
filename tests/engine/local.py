"""A queue on the two stores without a server, for tests whose subject does not depend on the store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from onerow import Queue
from onerow.stores.memory import MemoryStore
from onerow.stores.sqlite import SqliteStore


@pytest.fixture(params=["memory", "sqlite"])
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Queue]:
    """An empty queue."""
    opened = Queue(MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "onerow.db"))
    yield opened
    opened.close()
