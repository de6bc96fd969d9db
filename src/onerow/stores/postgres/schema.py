"""Migrations: numbered SQL files. Each runs once, in the first process that needs it.

A file whose first line ends in 'outside a transaction.' runs
statement by statement, for indexes that are built CONCURRENTLY.
"""

import re
from collections.abc import Iterator
from hashlib import blake2b
from importlib.resources import files

from onerow.core.errors import BadInput, StoreError, StoreReadOnly
from onerow.stores.postgres.connections import Connections
from onerow.stores.postgres.pipelining import Connection
from onerow.stores.postgres.statements import quoted, script
from onerow.stores.shared.schema_version import check_code, check_version

SCHEMA = 2
"""The newest schema version that this code knows."""
MIN_CODE = 1
"""The `min_code` that this version records."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,49}")


def check_name(schema: str) -> str:
    """Return the schema name, or raise BadInput: it is part of every statement and of the NOTIFY channel."""
    if not _NAME.fullmatch(schema):
        raise BadInput(f"{schema!r} can't name a schema", fix="use letters, digits and '_', at most 50", field="schema")
    return schema


ENCODINGS = ("UTF8", "SQL_ASCII")
"""Database encodings that can store every text; SQL_ASCII stores bytes unchanged."""
UTF8_DATABASE = "use a database that was created with ENCODING 'UTF8'"


def migrate(connections: Connections, schema: str) -> None:
    """Migrate the database to SCHEMA; safe to call from many processes at once."""
    with connections.connection() as connection:
        version, min_code = versions(connection, schema)
        check_code(SCHEMA, version, min_code)
        if version >= SCHEMA:
            return
        _check_server(connection, connections.address.masked)
        if version == 0:
            _refuse_foreign_table(connection, schema)
        for number in range(version + 1, SCHEMA + 1):
            _run(connection, schema, number)


def _refuse_foreign_table(connection: Connection, schema: str) -> None:
    """Raise StoreError if the user has a table with the name of onerow's in the schema that onerow is to use."""
    found = connection.execute(
        "SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relname = 'task_queue'",
        (schema,),
    ).fetchone()
    # Read again: another process may have migrated in between.
    if found is not None and versions(connection, schema)[0] == 0:
        raise StoreError(
            f"the schema {schema} has a table task_queue that is not onerow's",
            fix=f"use a schema of onerow's own (?schema=onerow), then adopt it: onerow pg adopt {schema}.task_queue --mapping FILE",
        )


def _check_server(connection: Connection, url: str) -> None:
    ((standby, encoding),) = connection.execute(
        "SELECT pg_is_in_recovery(), pg_encoding_to_char(encoding) FROM pg_database WHERE datname = current_database()"
    ).fetchall()
    if standby:
        raise StoreReadOnly(f"{url} is a standby, which only reads", fix="connect to the primary")
    if encoding not in ENCODINGS:
        raise StoreError(f"{url} has encoding {encoding}, which can't hold every text", fix=UTF8_DATABASE)


def check(connections: Connections, schema: str) -> None:
    """Raise if tables are missing or too old, or if the database requires newer code."""
    version, min_code = connections.read(lambda connection: versions(connection, schema))
    check_version(f"{connections.address.masked} ({schema})", SCHEMA, version, min_code)


def versions(connection: Connection, schema: str) -> tuple[int, int]:
    """Return the recorded (schema, min_code); (0, 0) in a new database."""
    # Reads the catalog directly: the cache behind to_regclass may miss a migration that another process just ran.
    table = connection.execute(
        "SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relname = 'onerow_meta'",
        (schema,),
    ).fetchone()
    if table is None:
        return 0, 0
    found: dict[str, int] = dict(connection.execute(f"SELECT key, value FROM {quoted(schema)}.onerow_meta").fetchall())
    return found.get("schema", 0), found.get("min_code", 0)


def pending(version: int, schema: str) -> Iterator[str]:
    """Yield the SQL that migrates from a schema version to the newest, to be run by hand."""
    for number in range(version + 1, SCHEMA + 1):
        yield from (f"{sql};\n" for sql in _steps(schema, number))


def drop(connections: Connections, schema: str) -> None:
    """Delete the schema with everything in it."""
    with connections.connection() as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {quoted(schema)} CASCADE")


def known_files() -> list[str]:
    """Return the file names of all migrations."""
    folder = files("onerow.stores.postgres").joinpath("sql")
    return sorted(file.name for file in folder.iterdir() if file.name.startswith("schema_"))


def _run(connection: Connection, schema: str, number: int) -> None:
    # The lock serializes migrations; a session lock where the steps cannot run in one transaction.
    key = int.from_bytes(blake2b(f"migrate {schema}".encode(), digest_size=8).digest(), signed=True)
    if not _is_outside(schema, number):
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s::bigint)", (key,))
            if versions(connection, schema)[0] < number:
                connection.execute("SET LOCAL statement_timeout = 0")
                for sql in _steps(schema, number):
                    connection.execute(sql)
        return
    connection.execute("SELECT pg_advisory_lock(%s::bigint)", (key,))
    try:
        if versions(connection, schema)[0] < number:
            for sql in _steps(schema, number):
                connection.execute(sql)
    finally:
        connection.execute("SELECT pg_advisory_unlock(%s::bigint)", (key,))


def _is_outside(schema: str, number: int) -> bool:
    return script(f"schema_{number}", schema).partition("\n")[0].endswith("outside a transaction.")


def _steps(schema: str, number: int) -> Iterator[str]:
    """Yield single statements, the version record last; they are run again if an earlier run was interrupted."""
    if number == 1:
        yield f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}"
    yield from split(script(f"schema_{number}", schema))
    yield (
        f"INSERT INTO {quoted(schema)}.onerow_meta VALUES ('schema', {number}), ('min_code', {MIN_CODE}) "
        f"ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    )


def split(script: str) -> Iterator[str]:
    """Yield the statements of a script: each ends with a semicolon at the end of a line, outside of $$."""
    pending: list[str] = []
    quoted_body = False
    for line in script.splitlines():
        pending.append(line)
        quoted_body ^= line.count("$$") % 2 == 1
        if line.rstrip().endswith(";") and not quoted_body and not line.lstrip().startswith("--"):
            yield "\n".join(pending).strip().removesuffix(";")
            pending = []
