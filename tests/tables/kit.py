"""A database with a queue and a raw SQL connection beside it, on PostgreSQL or SQLite."""

import sqlite3
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from onerow.core.table_mapping import TableMapping, read_mapping
from onerow.mappings import example
from onerow.pipelines.pipeline import Pipeline
from onerow.ports import Store
from onerow.wiring import Queue, open_store

POST = "5f0c6f0e-6f0b-4a55-9a4e-2f2f8f4f9d01"
ACCOUNT = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"


def pipeline(name: str, *phases: str, **options: Any) -> Pipeline:
    """A pipeline whose phases do nothing."""
    made = Pipeline(name, **options)
    for phase in phases:
        made.phase(name=phase)(lambda job: None)
    return made


def shipped(name: str, **changes: Any) -> TableMapping:
    """A shipped mapping, with some of its keys replaced."""
    return read_mapping(tomllib.loads(example(name)) | changes)


@dataclass
class Database:
    """One database: the queue's store, and the connection of a program that knows nothing of onerow."""

    kind: str
    url: str
    store: Any
    connection: Any

    def sql(self, statement: str, *given: Any) -> list[tuple[Any, ...]]:
        """Execute one statement as the program; ? is a parameter."""
        if self.kind == "postgres":
            statement = statement.replace("%", "%%").replace("?", "%s")
        cursor = self.connection.execute(statement, given)
        return cursor.fetchall() if cursor.description else []

    def refused(self, statement: str, *given: Any) -> str:
        """Execute a statement that must be refused; return the message with the hint."""
        try:
            self.sql(statement, *given)
        except psycopg.Error as error:
            return f"{error.diag.message_primary} {error.diag.message_hint or ''}"
        except sqlite3.Error as error:
            return str(error)
        raise AssertionError(f"not refused: {statement}")

    def queue(self, *pipelines: Pipeline) -> Queue:
        queue = Queue(self.store)
        queue.publish(*pipelines)
        return queue


@contextmanager
def database(kind: str, url: str) -> Iterator[Database]:
    """Open a store that is not migrated yet, and a connection beside it."""
    store: Store = open_store(url)
    connection: Any = (
        psycopg.connect(url, autocommit=True)
        if kind == "postgres"
        else sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=30)
    )
    try:
        yield Database(kind, url, store, connection)
    finally:
        connection.close()
        store.close()
