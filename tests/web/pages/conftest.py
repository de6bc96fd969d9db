"""Queues and dashboards for the tests of the pages."""

from collections.abc import Iterator

import pytest

from onerow import Queue
from onerow.web import Dashboard, dashboard
from tests.web.pages.kit import Browser, fill


@pytest.fixture
def queue(sqlite_url: str) -> Iterator[Queue]:
    queue = Queue(sqlite_url)
    queue.store  # noqa: B018  creates the tables
    yield queue
    queue.close()


@pytest.fixture
def ids(queue: Queue) -> dict[str, str]:
    """One task id for each state."""
    return fill(queue)


@pytest.fixture
def app(queue: Queue) -> Iterator[Dashboard]:
    app = dashboard(queue)
    yield app
    app.close()


@pytest.fixture
def browser(app: Dashboard) -> Browser:
    return Browser(app)
