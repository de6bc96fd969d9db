"""CHECK constraints refuse common mistakes in manual SQL."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from onerow.stores.sqlite import SqliteStore
from tests.conformance.kit import put


@pytest.mark.parametrize(
    "column, value",
    [
        ("run_at", "unixepoch()"),
        ("run_at", "CURRENT_TIMESTAMP"),
        ("created_at", "1763234567"),
        ("scheduled_time", "'soon'"),
        ("status", "'done'"),
        ("version", "9223372036854775807"),
        ("token", "9223372036854775807"),
        ("payload", "'{broken'"),
        ("results", "'[]'"),
        ("logs", "'{}'"),
    ],
)
def test_an_unreadable_value_is_refused(tmp_path: Path, column: str, value: str) -> None:
    store = SqliteStore(tmp_path / "onerow.db")
    store.prepare()
    put(store)
    with closing(sqlite3.connect(store.path)) as connection:
        with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
            connection.execute(f"UPDATE task_queue SET {column} = {value}")
        with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
            connection.execute(f"INSERT INTO task_queue (task_id, type, {column}) VALUES ('x', 'script', {value})")
    store.close()
