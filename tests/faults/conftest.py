"""A folder with a database for each test; all its processes are ended afterwards."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.kit import Place, a_place


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with a_place(tmp_path) as made:
        yield made


@pytest.fixture(params=["sqlite", "postgres", "mongo"])
def any_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """The same on each store that several processes can share."""
    url = "" if request.param == "sqlite" else request.getfixturevalue(f"{request.param}_url")
    with a_place(tmp_path, url) as made:
        yield made
