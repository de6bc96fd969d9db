"""Limits are unique indexes: a second holder of a slot is refused by the store itself, whatever the code does."""

import sqlite3
from pathlib import Path

import psycopg
import pymongo
import pytest
from pymongo.errors import DuplicateKeyError

from onerow.ports import Store
from onerow.stores.mongo import MongoStore
from onerow.stores.postgres import PostgresStore
from onerow.stores.sqlite import SqliteStore
from tests.conformance.kit import claim, put


def two_running(store: Store) -> None:
    """Two running tasks of one phase and key, in slots 0 and 1."""
    store.prepare()
    put(store, "t1", limit_key="k")
    put(store, "t2", limit_key="k")
    assert len(claim(store, 2, slots=2, key_slots=2)) == 2
    store.close()


@pytest.mark.parametrize("column", ["slot", "key_slot"])
def test_sqlite_refuses_a_second_holder_of_a_slot(tmp_path: Path, column: str) -> None:
    two_running(SqliteStore(tmp_path / "slots.db"))
    connection = sqlite3.connect(tmp_path / "slots.db")
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        connection.execute(f"UPDATE task_queue SET {column} = 0")
    connection.close()


@pytest.mark.parametrize("column", ["slot", "key_slot"])
def test_postgresql_refuses_a_second_holder_of_a_slot(postgres_url: str, column: str) -> None:
    two_running(PostgresStore(postgres_url))
    with psycopg.connect(postgres_url) as connection, pytest.raises(psycopg.errors.UniqueViolation):
        connection.execute(f"UPDATE onerow.task_queue SET {column} = 0")


@pytest.mark.parametrize("column", ["slot", "key_slot"])
def test_mongodb_refuses_a_second_holder_of_a_slot(mongo_url: str, column: str) -> None:
    two_running(MongoStore(mongo_url))
    with pymongo.MongoClient[dict[str, object]](mongo_url) as client, pytest.raises(DuplicateKeyError):
        client.get_default_database()["task_queue"].update_many({}, {"$set": {column: 0}})
