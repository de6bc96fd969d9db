"""The index of titles that earlier versions kept in the file is dropped."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from onerow.core.filters import Filter
from onerow.stores.sqlite import SqliteStore
from tests.samples import a_task


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file in which an earlier version has indexed the only title."""
    path = tmp_path / "titles.db"
    store = SqliteStore(path)
    store.prepare()
    store.insert([a_task("t1", title="Tides of the Moon")])
    store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE VIRTUAL TABLE onerow_title USING fts5(title, content='', tokenize='trigram', detail=none);"
            "INSERT INTO onerow_title (rowid, title) VALUES (1, 'tides of the moon');"
            "INSERT INTO onerow_meta VALUES ('titled', 1), ('titled_row', 7)"
        )
    return path


def names(path: Path) -> set[str]:
    """The names of everything in the file that belongs to the index: tables, and its position."""
    with closing(sqlite3.connect(path)) as connection:
        return {
            name
            for (name,) in connection.execute(
                "SELECT name FROM sqlite_master WHERE name LIKE 'onerow_title%' "
                "UNION ALL SELECT key FROM onerow_meta WHERE key LIKE 'titled%'"
            )
        }


def test_the_index_and_its_position_are_dropped(path: Path) -> None:
    assert {"onerow_title", "onerow_title_data", "titled", "titled_row"} <= names(path)
    store = SqliteStore(path)
    store.prepare()
    assert names(path) == set()
    assert [task.task_id for task in store.find(Filter(title_text="tides")).tasks] == ["t1"]
    assert {finding.level for finding in store.inspect()} == {"good"}
    store.close()


def test_an_index_in_a_file_that_is_in_use_is_dropped_later(path: Path) -> None:
    store = SqliteStore(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        store.prepare()
        assert "onerow_title" in names(path)
        writer.execute("ROLLBACK")
    store.prepare()
    assert names(path) == set()
    store.close()
