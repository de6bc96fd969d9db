"""Migrations: numbered SQL files, run once each, whoever comes first.

The store records `schema` (how far it was migrated) and `min_code` (the oldest schema number that code may know and
still work beside it). Code refuses only below min_code. A file whose first line ends in 'outside a transaction' is run
statement by statement, for indexes that are built CONCURRENTLY while others work.
"""

import re
from collections.abc import Iterator
from hashlib import blake2b
from importlib.resources import files
from uuid import uuid4

import psycopg

from onerow.core.errors import BadInput, CodeTooOld, SchemaMissing, StoreError, StoreReadOnly
from onerow.stores.postgres.connections import Connection, Connections
from onerow.stores.postgres.statements import quoted, statement

SCHEMA = 1
"""The newest schema this code knows."""
MIN_CODE = 1
"""What this schema demands of code that works beside it."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,49}")


def check_name(schema: str) -> str:
    """A schema's name is part of a channel's name and of every statement, so it is kept simple."""
    if not _NAME.fullmatch(schema):
        raise BadInput(f"{schema!r} can't name a schema: use letters, digits and '_', at most 50", field="schema")
    return schema


ENCODINGS = ("UTF8", "SQL_ASCII")
"""Encodings of a database in which every text can be stored; SQL_ASCII stores bytes as they come."""
UTF8_DATABASE = "use a database that was created with ENCODING 'UTF8'"


def migrate(door: Connections, schema: str) -> None:
    """Bring the database up to SCHEMA; many processes may do so at once, and one of them does the work."""
    with door.connection() as connection:
        version, min_code = versions(connection, schema)
        _check_code(version, min_code)
        if version >= SCHEMA:
            return
        _check_server(connection, door.address.masked)
        for number in range(version + 1, SCHEMA + 1):
            _run(connection, schema, number)


def _check_server(connection: Connection, url: str) -> None:
    ((standby, encoding),) = connection.execute(
        "SELECT pg_is_in_recovery(), pg_encoding_to_char(encoding) FROM pg_database WHERE datname = current_database()"
    ).fetchall()
    if standby:
        raise StoreReadOnly(f"{url} is a standby, which only reads; name the primary")
    if encoding not in ENCODINGS:
        raise StoreError(f"{url} has encoding {encoding}, which can't hold every text; {UTF8_DATABASE}")


def check(door: Connections, schema: str) -> None:
    """Refuse to work on a database that is missing its tables, or that is for newer code only."""
    version, min_code = door.read(lambda connection: versions(connection, schema))
    _check_code(version, min_code)
    if version < SCHEMA:
        raise SchemaMissing(
            f"{door.address.masked}: schema {schema!r} is at {version}, this code needs {SCHEMA}; run: onerow migrate"
        )


def versions(connection: Connection, schema: str) -> tuple[int, int]:
    """(schema, min_code) as recorded; (0, 0) in a new database."""
    # Asked of the catalog as of now; to_regclass may answer from a cache that hasn't heard of another's migration.
    there = connection.execute(
        "SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relname = 'onerow_meta'",
        (schema,),
    ).fetchone()
    if there is None:
        return 0, 0
    found: dict[str, int] = dict(connection.execute(f"SELECT key, value FROM {quoted(schema)}.onerow_meta").fetchall())
    return found.get("schema", 0), found.get("min_code", 0)


def pending(version: int, schema: str) -> Iterator[str]:
    """The SQL that leads from a schema version to the newest, for someone who runs it by hand."""
    for number in range(version + 1, SCHEMA + 1):
        yield from (f"{sql};\n" for sql in _steps(schema, number))


def drift(door: Connections, schema: str) -> list[str]:
    """How the tables differ from what the migrations make: '-' is missing, '+' is extra.

    The migrations are run beside them, in a transaction that is rolled back.
    """
    beside = f"onerow_check_{uuid4().hex[:8]}"
    with door.connection() as connection:
        version, _ = versions(connection, schema)
        there = _shape(connection, schema)
        try:
            with connection.transaction():
                for number in range(1, version + 1):
                    for sql in _steps(beside, number):
                        connection.execute(sql.replace(" CONCURRENTLY", ""))
                right = _shape(connection, beside)
                raise psycopg.Rollback
        except psycopg.Rollback:
            pass
    return [f"- {line}" for line in sorted(right - there)] + [f"+ {line}" for line in sorted(there - right)]


def known_files() -> list[str]:
    """The migrations that ship with this code."""
    folder = files("onerow.stores.postgres").joinpath("sql")
    return sorted(file.name for file in folder.iterdir() if file.name.startswith("schema_"))


def _run(connection: Connection, schema: str, number: int) -> None:
    # One after the other, whoever they are; a lock of the session where the steps can't be in one transaction.
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
    return statement(f"schema_{number}", schema).partition("\n")[0].endswith("outside a transaction.")


def _steps(schema: str, number: int) -> Iterator[str]:
    """Single statements, the record of the migration last; each may be repeated if a run was cut off before that."""
    if number == 1:
        yield f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}"
    yield from split(statement(f"schema_{number}", schema))
    yield (
        f"INSERT INTO {quoted(schema)}.onerow_meta VALUES ('schema', {number}), ('min_code', {MIN_CODE}) "
        f"ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    )


def split(script: str) -> Iterator[str]:
    """The statements of a script: each ends with a semicolon at the end of a line, outside of $$."""
    pending: list[str] = []
    quoted_body = False
    for line in script.splitlines():
        pending.append(line)
        quoted_body ^= line.count("$$") % 2 == 1
        if line.rstrip().endswith(";") and not quoted_body and not line.lstrip().startswith("--"):
            yield "\n".join(pending).strip().removesuffix(";")
            pending = []


def _shape(connection: Connection, schema: str) -> set[str]:
    """What stands in a schema, a line for each column, index, constraint, trigger and function."""
    rows = connection.execute(statement("shape", schema), {"schema": schema}).fetchall()
    own_name = re.compile(rf"""(?<![\w'])"?{schema}"?\.""")  # in front of a name, not inside a text
    return {own_name.sub("", line) for (line,) in rows}


def _check_code(version: int, min_code: int) -> None:
    if min_code > SCHEMA:
        raise CodeTooOld(
            f"the store has schema {version} and needs code that knows schema {min_code}; "
            f"this onerow knows {SCHEMA}: upgrade it (pip install -U onerow)"
        )
