"""The stores that the conformance suite tests. A new store needs only an entry here.

A store declares in its entry what it can't do; no test skips a store by name.
"""

import json
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from onerow.core.times import to_millis
from onerow.ports import Store
from onerow.stores.memory import MemoryStore
from tests.runner.seeded import new_name

# Racing processes import this file, and start faster without pytest and with the driver of one server only.
if TYPE_CHECKING:
    import pytest
    from pymongo.database import Database

    from tests.servers.mongo import MongoDatabases


class Clock:
    """A clock that advances only by `forward`."""

    def __init__(self) -> None:
        self._now = to_millis(datetime.now(UTC))

    def __call__(self) -> datetime:
        return self._now

    def forward(self, span: timedelta) -> None:
        self._now += span


@dataclass(frozen=True)
class Entry:
    """A kind of store: how to create an empty database, and how to open it, in this or another process."""

    name: str
    fresh: Callable[["pytest.FixtureRequest"], str]  # returns the address of an empty database
    open: Callable[[str, Callable[[], datetime] | None], Store]  # None: the store's own clock
    clock: bool = True  # accepts a clock, so that a test can set the time
    processes: bool = True  # other processes can open the same address
    spoil: Callable[["OpenedStore", str, str, Any], bool] | None = (
        None  # writes an invalid value into a column; returns whether the database accepted it
    )
    wakes_by_rule: bool = True  # another process is woken only by the transitions that core.wakeups names
    scales: bool = True  # the cost of a claim doesn't grow with the table
    slow: bool = False  # has a slow server: run by `make soak`
    older: bool = False  # an older server: `make soak` runs every test on it, a normal run those of its writes


@dataclass
class OpenedStore:
    """A prepared store, with functions to open a second handle and to advance the time."""

    entry: Entry
    address: str
    store: Store
    again: Callable[[], Store]  # opens another handle on the same data, like another process
    later: Callable[[timedelta], None]  # advances the clock; sleeps if the clock can't be set


_memories: dict[str, MemoryStore] = {}


def _fresh_memory(request: "pytest.FixtureRequest") -> str:
    address = f"memory-{len(_memories)}"
    request.addfinalizer(lambda: _memories.pop(address, None))
    _memories[address] = MemoryStore()
    return address


def _open_memory(address: str, clock: Callable[[], datetime] | None) -> Store:
    store = _memories[address]
    if clock is not None:
        store._clock = clock  # all handles are the same store, so they share the clock
    return store


def _fresh_sqlite(request: "pytest.FixtureRequest") -> str:
    folder: Path = request.getfixturevalue("tmp_path")
    return str(folder / "onerow.db")


def _open_sqlite(address: str, clock: Callable[[], datetime] | None) -> Store:
    from onerow.stores.sqlite import SqliteStore

    return SqliteStore(address) if clock is None else SqliteStore(address, clock=clock)


def _spoil_sqlite(opened: "OpenedStore", task_id: str, column: str, value: Any) -> bool:
    with closing(sqlite3.connect(opened.address, isolation_level=None)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(f"UPDATE task_queue SET {column} = ? WHERE task_id = ?", (value, task_id))
    return True


def _fresh_postgres(request: "pytest.FixtureRequest") -> str:
    return _fresh_schema(request, "postgres_server")


def _fresh_postgres_15(request: "pytest.FixtureRequest") -> str:
    return _fresh_schema(request, "postgres_15_server")


def _fresh_schema(request: "pytest.FixtureRequest", server: str) -> str:
    # Creating a schema takes a tenth of the time of creating a database.
    url = f"{request.getfixturevalue(server).url}?schema={new_name('onerow_')}"
    request.addfinalizer(lambda: _drop_schema(url))
    return url


def _drop_schema(url: str) -> None:
    import psycopg
    from psycopg import sql

    server, _, schema = url.partition("?schema=")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))


def _open_postgres(address: str, clock: Callable[[], datetime] | None) -> Store:
    from onerow.stores.postgres import PostgresStore

    return PostgresStore(address, clock=clock)


def _spoil_postgres(opened: "OpenedStore", task_id: str, column: str, value: Any) -> bool:
    import psycopg
    from psycopg import sql

    server, _, schema = opened.address.partition("?schema=")
    with psycopg.connect(server, autocommit=True) as connection:
        for domain, constraint in connection.execute(
            "SELECT t.typname, c.conname FROM pg_constraint AS c JOIN pg_type AS t ON t.oid = c.contypid "
            "WHERE c.connamespace = to_regnamespace(%s)",
            (schema,),
        ).fetchall():
            connection.execute(f"ALTER DOMAIN {schema}.{domain} DROP CONSTRAINT {constraint}")
        try:
            connection.execute(
                f"UPDATE {schema}.task_queue SET {column} = {sql.Literal(value).as_string(connection)} "
                f"WHERE task_id = %s",
                (task_id,),
            )
        except (psycopg.DataError, psycopg.errors.DatatypeMismatch):
            return False
    return True


def _spoil_mongo(opened: "OpenedStore", task_id: str, column: str, value: Any) -> bool:
    if isinstance(value, str) and column in ("payload", "results", "steps", "signals", "logs", "metadata"):
        try:
            value = json.loads(value)
        except ValueError:
            return False  # MongoDB stores values, not JSON text, so broken JSON can't be written
    from pymongo import MongoClient, WriteConcern

    with MongoClient[Any](opened.address) as client:
        tasks = client.get_default_database()["task_queue"].with_options(write_concern=WriteConcern(j=True))
        tasks.update_one({"_id": task_id}, {"$set": {column: value}}, bypass_document_validation=True)
    return True


_emptied: list[str] = []  # databases without documents, whose collections and indexes are those of a prepared store


def _fresh_mongo(request: "pytest.FixtureRequest") -> str:
    # Emptying a database takes a tenth of the time of creating one with its indexes.
    server: MongoDatabases = request.getfixturevalue("mongo_server")
    url = _emptied.pop() if _emptied else server.fresh_database()
    request.addfinalizer(lambda: _empty_mongo(server, url))
    return url


def _empty_mongo(server: "MongoDatabases", url: str) -> None:
    database = server.client[urlsplit(url).path.removeprefix("/")]
    if _schema_of_mongo(database) == _prepared_schema(server):
        for name in database.list_collection_names():
            database[name].delete_many({})
        _emptied.append(url)
    else:
        server.drop_database(url)


@cache
def _prepared_schema(server: "MongoDatabases") -> dict[str, Any]:
    from onerow.stores.mongo import MongoStore

    url = server.fresh_database()
    store = MongoStore(url)
    store.prepare()
    store.close()
    found = _schema_of_mongo(server.client[urlsplit(url).path.removeprefix("/")])
    server.drop_database(url)
    return found


def _schema_of_mongo(database: "Database[Any]") -> dict[str, Any]:
    return {
        each["name"]: (each["options"], database[each["name"]].index_information())
        for each in database.list_collections()
    }


def _fresh_replica_set(request: "pytest.FixtureRequest") -> str:
    url: str = request.getfixturevalue("mongo_replica_set_url")
    return url


def _open_mongo(address: str, clock: Callable[[], datetime] | None) -> Store:
    from onerow.stores.mongo import MongoStore

    return MongoStore(address, clock=clock)


def _open_mongo_7(address: str, clock: Callable[[], datetime] | None) -> Store:
    from onerow.stores.mongo import MongoStore

    return MongoStore(address, clock=clock, bulk=False)


ENTRIES = {
    entry.name: entry
    for entry in (
        Entry("memory", _fresh_memory, _open_memory, processes=False, scales=False),
        Entry("sqlite", _fresh_sqlite, _open_sqlite, spoil=_spoil_sqlite, wakes_by_rule=False),
        Entry("postgres", _fresh_postgres, _open_postgres, spoil=_spoil_postgres),
        Entry("postgres-15", _fresh_postgres_15, _open_postgres, spoil=_spoil_postgres, older=True),
        Entry("mongo", _fresh_mongo, _open_mongo, spoil=_spoil_mongo),
        Entry("mongo as before 8.0", _fresh_mongo, _open_mongo_7, spoil=_spoil_mongo, older=True),
        Entry("mongo 7.0 replica set", _fresh_replica_set, _open_mongo, spoil=_spoil_mongo, slow=True),
    )
}


def open_fresh(
    entry: Entry, request: "pytest.FixtureRequest", *, own_clock: bool = True, prepare: bool = True
) -> OpenedStore:
    """Create and open an empty store with a clock that the test sets; its handles are closed when the test ends."""
    address = entry.fresh(request)
    clock = Clock() if entry.clock and own_clock else None

    def again() -> Store:
        store = entry.open(address, clock)
        request.addfinalizer(store.close)
        return store

    store = again()
    if prepare:
        store.prepare()
    return OpenedStore(
        entry, address, store, again, clock.forward if clock else lambda span: time.sleep(span.total_seconds())
    )
