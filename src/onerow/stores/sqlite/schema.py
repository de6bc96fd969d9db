"""Migrations: numbered SQL files, run once each, whoever comes first.

The store records `schema` (how far it was migrated) and `min_code` (the oldest schema number that code may know and
still work beside it). Code refuses only below min_code.
"""

import sqlite3
from collections.abc import Iterator
from importlib.resources import files

from onerow.core.errors import CodeTooOld, SchemaMissing
from onerow.stores.sqlite.connections import Connections
from onerow.stores.sqlite.statements import statement

SCHEMA = 1
"""The newest schema this code knows."""
MIN_CODE = 1
"""What this schema demands of code that works beside it."""


def migrate(door: Connections) -> None:
    """Bring the file up to SCHEMA; many processes may do so at once, and one of them does the work."""
    with door.read() as connection:
        version, min_code = versions(connection)
    _check_code(version, min_code)
    if version >= SCHEMA:
        return
    with door.write() as connection:
        version, min_code = versions(connection)
        _check_code(version, min_code)
        for number in range(version + 1, SCHEMA + 1):
            for sql in _split(statement(f"schema_{number}")):
                connection.execute(sql)
        connection.execute(
            "CREATE TABLE IF NOT EXISTS onerow_meta (key TEXT PRIMARY KEY NOT NULL, value INTEGER NOT NULL) WITHOUT ROWID"
        )
        connection.executemany(
            "INSERT INTO onerow_meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            [("schema", SCHEMA), ("min_code", MIN_CODE)],
        )


def check(door: Connections) -> None:
    """Refuse to work on a file that is missing its tables, or that newer code has left behind for newer code only."""
    with door.read() as connection:
        version, min_code = versions(connection)
    _check_code(version, min_code)
    if version < SCHEMA:
        raise SchemaMissing(f"{door.path} has schema {version}, this code needs {SCHEMA}; run: onerow migrate")


def versions(connection: sqlite3.Connection) -> tuple[int, int]:
    """(schema, min_code) as recorded; (0, 0) in a new file."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'onerow_meta'").fetchone():
        return 0, 0
    found = dict(connection.execute("SELECT key, value FROM onerow_meta").fetchall())
    return found.get("schema", 0), found.get("min_code", 0)


def pending(version: int) -> Iterator[str]:
    """The SQL that leads from a schema version to the newest."""
    for number in range(version + 1, SCHEMA + 1):
        yield statement(f"schema_{number}")


def known_files() -> list[str]:
    """The migrations that ship with this code."""
    return sorted(
        f.name for f in files("onerow.stores.sqlite").joinpath("sql").iterdir() if f.name.startswith("schema_")
    )


def _check_code(version: int, min_code: int) -> None:
    if min_code > SCHEMA:
        raise CodeTooOld(
            f"the store has schema {version} and needs code that knows schema {min_code}; "
            f"this onerow knows {SCHEMA}: upgrade it (pip install -U onerow)"
        )


def _split(script: str) -> Iterator[str]:
    """Single statements of a script: executescript would commit our transaction."""
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
