"""Dashboards for the tests of this folder: on SQLite, unless a test asks for other stores."""

from collections.abc import Iterator

import pytest

from onerow import Queue
from onerow.web import Dashboard, dashboard
from tests.web.kit import access, clips


@pytest.fixture
def queue(sqlite_url: str) -> Iterator[Queue]:
    queue = Queue(sqlite_url)
    queue.publish(clips())
    yield queue
    queue.close()


@pytest.fixture
def site(queue: Queue) -> Iterator[Dashboard]:
    """With tokens and users."""
    app = dashboard(queue, access=access())
    yield app
    app.close()


@pytest.fixture
def local_site(queue: Queue) -> Iterator[Dashboard]:
    """Without a credential: open to this machine only."""
    app = dashboard(queue)
    yield app
    app.close()
