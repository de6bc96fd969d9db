"""A search in titles is bounded also among waiting tasks, which other queries find by an index of their own."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from onerow.core.filters import Filter
from onerow.core.status import WAITING
from onerow.stores.postgres import PostgresStore
from onerow.stores.postgres import searching as postgres
from onerow.stores.sqlite import SqliteStore
from onerow.stores.sqlite import searching as sqlite
from tests.conformance.kit import HOUR, new
from tests.samples import SECOND

AT_ONCE = timedelta(0)
PARKED = Filter(title_text="tides", statuses=frozenset({WAITING}), parked=True)
READY = Filter(title_text="tides", statuses=frozenset({WAITING}), parked=False, phases=frozenset({"script"}))


@pytest.fixture(params=["sqlite", "postgres"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SqliteStore | PostgresStore]:
    """A store that sorts fewer than 100 waiting tasks and scans more."""
    monkeypatch.setattr(sqlite, "_FEW", 100)
    monkeypatch.setattr(postgres, "_FEW", 100)
    sqlite_store = request.param == "sqlite"
    store = SqliteStore(tmp_path / "t.db") if sqlite_store else PostgresStore(request.getfixturevalue("postgres_url"))
    store.prepare()
    yield store
    store.close()


def put(store: SqliteStore | PostgresStore, count: int, awaiting: str | None) -> None:
    """Waiting tasks; the oldest of them is the only one with a matching title."""
    now = store.now()
    store.insert(
        [
            new(store, f"{awaiting}{n}", title="x" if n else "Tides", created_at=now + n * SECOND, awaiting=awaiting)
            for n in range(count)
        ]
    )


@pytest.mark.parametrize("where, awaiting", [(PARKED, "signal:go"), (READY, None)], ids=["parked", "ready"])
def test_a_search_among_many_waiting_tasks_stops_at_its_time(
    store: SqliteStore | PostgresStore, where: Filter, awaiting: str | None
) -> None:
    put(store, 1_200, awaiting)
    found = store.search(where, within=AT_ONCE)
    assert (found.tasks, found.looked_back_to is None) == ([], False)
    assert [task.title for task in store.search(where, within=HOUR).tasks] == ["Tides"]


@pytest.mark.parametrize("where, few, many", [(PARKED, "signal:go", None), (READY, None, "signal:go")], ids=["parked", "ready"])  # fmt: skip
def test_a_search_among_few_waiting_tasks_reads_only_them(
    store: SqliteStore | PostgresStore, where: Filter, few: str | None, many: str | None
) -> None:
    put(store, 50, few)
    put(store, 1_200, many)
    found = store.search(where, within=AT_ONCE)
    assert ([task.title for task in found.tasks], found.looked_back_to) == (["Tides"], None)
