"""Profiles: the sync level of every connection."""

from pathlib import Path
from typing import Literal

import pytest

from onerow.stores.sqlite import SqliteStore
from onerow.wiring import open_store
from tests.conformance.kit import put

OFF, NORMAL, FULL = 0, 1, 2


@pytest.mark.parametrize("profile, level", [("durable", FULL), ("fast", NORMAL)])
def test_each_profile_sets_its_sync_level(tmp_path: Path, profile: Literal["durable", "fast"], level: int) -> None:
    store = SqliteStore(tmp_path / "onerow.db", profile=profile)
    store.prepare()
    put(store)
    for _ in range(2):
        writer = store._connections.writer()
        assert writer.execute("PRAGMA synchronous").fetchone() == (level,)
        assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        with store._connections.read() as reader:
            assert reader.execute("PRAGMA synchronous").fetchone() == (level,)
        store.close()  # forces a new connection
        put(store, "t2") if not store.fetch(["t2"]) else None
    store.close()


def test_a_store_opened_by_its_url_is_durable(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/onerow.db")
    store.prepare()
    assert isinstance(store, SqliteStore)
    assert store._connections.writer().execute("PRAGMA synchronous").fetchone() == (FULL,)
    store.close()
