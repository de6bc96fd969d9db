"""Every test of this folder that asks for a store runs once with each."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import pytest

from onerow.ports import Store
from tests.conformance.stores import ENTRIES, Entry, Place
from tests.conformance.stores import place as make_place


def params(entries: Iterable[Entry]) -> list[Any]:
    """Parameters of a fixture: an entry each, those with a slow server marked so."""
    return [pytest.param(entry, id=entry.name, marks=[pytest.mark.slow] if entry.slow else []) for entry in entries]


@pytest.fixture(params=params(ENTRIES.values()))
def entry(request: pytest.FixtureRequest) -> Entry:
    found: Entry = request.param
    return found


@pytest.fixture
def place(entry: Entry, request: pytest.FixtureRequest) -> Place:
    return make_place(entry, request)


@pytest.fixture
def store(place: Place) -> Store:
    """A prepared store with nothing in it."""
    return place.store


@pytest.fixture
def again(place: Place) -> Callable[[], Store]:
    """Another handle on the same data, as another process has."""
    return place.again


@pytest.fixture
def later(place: Place) -> Callable[[timedelta], None]:
    """Let time go on by a span; keep it short, since a store with a clock of its own makes the test wait."""
    return place.later
