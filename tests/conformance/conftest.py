"""Run every test of this folder that uses a store once with each store."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import pytest

from onerow.ports import Store
from tests.conformance.stores import ENTRIES, Entry, OpenedStore, open_fresh


def params(entries: Iterable[Entry]) -> list[Any]:
    """Return fixture parameters, one for each entry; entries with a slow server are marked slow."""
    return [pytest.param(entry, id=entry.name, marks=[pytest.mark.slow] if entry.slow else []) for entry in entries]


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
