"""Migrations: numbered SQL files, each run once, by the first process that needs it."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress

from onerow.core.errors import SchemaMissing, StoreError
from onerow.stores.shared.schema_version import check_code, check_version
from onerow.stores.sqlite.connections import Connections
from onerow.stores.sqlite.statements import statement

SCHEMA = 2
"""The newest schema this code knows."""
MIN_CODE = 1
"""The oldest SCHEMA of code that may use a store with this schema."""
_CREATES = re.compile(r"CREATE (?:UNIQUE )?(?:TABLE|INDEX) (\w+)")


def migrate(connections: Connections) -> None:
    """Migrate the file to SCHEMA; if several processes call it at once, one of them does the work."""
    with connections.read() as connection:
        version, min_code = versions(connection)
        has_title_index = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'onerow_title'").fetchone()
    check_code(SCHEMA, version, min_code)
    if has_title_index:
        _drop_title_index(connections)
    if version >= SCHEMA:
        return
    with connections.write() as connection:
        version, min_code = versions(connection)
        check_code(SCHEMA, version, min_code)
        if version == 0:
            _refuse_foreign_names(connection, connections)
        for sql in statements(version):
            connection.execute(sql)
        record_version(connection)
    # A connection that was opened before plans its next statement by the old schema, and INDEXED BY then raises an error.
    connections.close()


def _drop_title_index(connections: Connections) -> None:
    """Drop the index of titles that earlier versions filled, and its position, so that their code starts a new one.

    Waits for no lock: if the file is in use, or this SQLite has no FTS5, a later process drops it.
    """
    with suppress(sqlite3.Error), closing(sqlite3.connect(connections.path, timeout=0)) as connection:
        connection.executescript(
            "BEGIN IMMEDIATE; DROP TABLE onerow_title; "
            "DELETE FROM onerow_meta WHERE key IN ('titled', 'titled_row'); COMMIT"
        )


def statements(version: int) -> Iterator[str]:
    """Yield the single statements of the migrations after a schema version."""
    for number in range(version + 1, SCHEMA + 1):
        yield from _split(statement(f"schema_{number}"))


def record_version(connection: sqlite3.Connection) -> None:
    """Record that the file has the newest schema."""
    connection.execute(
        "CREATE TABLE IF NOT EXISTS onerow_meta (key TEXT PRIMARY KEY NOT NULL, value INTEGER NOT NULL) WITHOUT ROWID"
    )
    connection.executemany(
        "INSERT INTO onerow_meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        [("schema", SCHEMA), ("min_code", MIN_CODE)],
    )


def _refuse_foreign_names(connection: sqlite3.Connection, connections: Connections) -> None:
    """Raise StoreError if another program has a table or index with the name of one of onerow's."""
    ours = {found[1] for sql in statements(0) if (found := _CREATES.search(sql)) is not None}
    for kind, name in connection.execute("SELECT type, lower(name) FROM sqlite_master ORDER BY type DESC, name"):
        if name not in ours:
            continue
        fix = f"rename it, or give onerow another file: sqlite:///{connections.path.with_name('tasks.db')}"
        if (kind, name) == ("table", "task_queue"):
            fix = (
                "adopt it: onerow sqlite adopt task_queue --mapping FILE "
                "(an example: onerow sqlite adopt --example task_queue); or use another file"
            )
        article = "an" if kind == "index" else "a"
        raise StoreError(f"{connections.path} has {article} {kind} {name} that is not onerow's", fix=fix)


def check(connections: Connections) -> None:
    """Raise SchemaMissing if the file is not migrated, CodeTooOld if it needs newer code; change nothing."""
    with connections.look() as connection:
        version, min_code = (0, 0) if connection is None else versions(connection)
        if version and connection is not None and connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            # A restored backup: the first use of the file switches it, which waits for every open transaction.
            raise SchemaMissing(f"{connections.path} is not in WAL mode yet")
    check_version(str(connections.path), SCHEMA, version, min_code)


def versions(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return the recorded (schema, min_code); (0, 0) for a new file."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'onerow_meta'").fetchone():
        return 0, 0
    found = dict(connection.execute("SELECT key, value FROM onerow_meta").fetchall())
    return found.get("schema", 0), found.get("min_code", 0)


def pending(version: int) -> Iterator[str]:
    """Yield the SQL of the migrations after a schema version."""
    for number in range(version + 1, SCHEMA + 1):
        yield statement(f"schema_{number}")


def _split(script: str) -> Iterator[str]:
    """Split a script into statements, because executescript would commit the open transaction."""
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
