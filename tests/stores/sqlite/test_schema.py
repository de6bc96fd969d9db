"""The tables of onerow in a file that belongs to another program too."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from onerow.core.errors import StoreError
from onerow.stores.sqlite import SqliteStore


@pytest.mark.parametrize(
    "sql, what, fix",
    [
        ("CREATE TABLE task_queue (id)", "a table task_queue", "onerow sqlite adopt task_queue --mapping FILE"),
        ("CREATE TABLE Task_Queue (id)", "a table task_queue", "onerow sqlite adopt task_queue --mapping FILE"),
        ("CREATE VIEW task_queue AS SELECT 1 AS id", "a view task_queue", "rename it, or give onerow another file"),
        ("CREATE TABLE onerow_log (id)", "a table onerow_log", "rename it, or give onerow another file"),
        ("CREATE INDEX task_created ON task (id)", "an index task_created", "rename it, or give onerow another file"),
    ],
)
def test_a_name_that_another_program_has_taken_is_refused_and_the_file_stays(
    tmp_path: Path, sql: str, what: str, fix: str
) -> None:
    file = tmp_path / "app.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(f"CREATE TABLE task (id); {sql};")
        before = connection.execute("SELECT * FROM sqlite_master").fetchall()
    store = SqliteStore(file)
    with pytest.raises(StoreError) as refused:
        store.prepare()
    store.close()
    assert str(refused.value) == f"{file} has {what} that is not onerow's"
    assert fix in refused.value.fix
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT * FROM sqlite_master").fetchall() == before


def test_tables_of_another_program_with_other_names_stay_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "app.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript("CREATE TABLE task (id); CREATE INDEX task_title ON task (id);")
    store = SqliteStore(file)
    store.prepare()
    store.close()
    with closing(sqlite3.connect(file)) as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    assert {"task", "task_title", "task_queue", "task_created"} <= names
