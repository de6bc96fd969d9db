"""Fixtures: a transcriber per test, with quick retries and a clean environment, and a server for media and models.

What several tests look at is run once, in a fixture of their module; such a module is one group of pytest-xdist.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.transcriber.tests.kit import home_at, model_server
from apps.transcriber.tests.model_server import ModelServer
from onerow import Queue
from tests.tui.conftest import no_freeze  # noqa: F401  a fixture
from transcriber import open_queue


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """TRANSCRIBER_HOME, in a folder whose name is not plain ASCII."""
    with home_at(tmp_path) as folder:
        yield folder


@pytest.fixture
def queue(home: Path) -> Iterator[Queue]:
    opened = open_queue()
    yield opened
    opened.close()


@pytest.fixture
def models(home: Path) -> Iterator[ModelServer]:
    """An endpoint with OpenAI's API, and media files over HTTP; jobs use it."""
    with model_server() as server:
        yield server
