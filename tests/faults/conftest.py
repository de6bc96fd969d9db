"""A place for each test: a database, a folder, and nobody left behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.kit import Place, a_place


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with a_place(tmp_path) as made:
        yield made
