"""Run every test of this folder that uses a store once with each store."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from onerow.ports import Store
from tests.conformance.stores import ENTRIES, Entry, OpenedStore, open_fresh

FOLDER = Path(__file__).parent
WRITES = {"test_claim", "test_insert", "test_leases", "test_limits", "test_notes", "test_races", "test_swap"}
"""The files that run on older servers too, in every run: their statements depend on the server's version."""


def params(entries: Iterable[Entry]) -> list[Any]:
    """Return fixture parameters, one for each entry; entries with a slow server are marked slow."""
    return [pytest.param(entry, id=entry.name, marks=[pytest.mark.slow] if entry.slow else []) for entry in entries]


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is slow
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and item.path.parent == FOLDER and item.path.stem not in WRITES:
            given = getattr(item, "callspec", None)
            if given is not None and any(isinstance(each, Entry) and each.older for each in given.params.values()):
                item.add_marker(pytest.mark.slow)


@pytest.fixture(params=params(ENTRIES.values()))
def entry(request: pytest.FixtureRequest) -> Entry:
    found: Entry = request.param
    return found


@pytest.fixture
def opened(entry: Entry, request: pytest.FixtureRequest) -> OpenedStore:
    return open_fresh(entry, request)


@pytest.fixture
def store(opened: OpenedStore) -> Store:
    """A prepared, empty store."""
    return opened.store


@pytest.fixture
def again(opened: OpenedStore) -> Callable[[], Store]:
    """Open another handle on the same data, like another process."""
    return opened.again


@pytest.fixture
def later(opened: OpenedStore) -> Callable[[timedelta], None]:
    """Advance the clock; keep the duration short, because the test sleeps if the store's clock can't be set."""
    return opened.later
