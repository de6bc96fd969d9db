"""Views over the queue in the words of the user's table: create, replace, drop, list."""

import sqlite3

import msgspec

from onerow.core.errors import BadInput
from onerow.core.table_mapping import TableMapping
from onerow.stores.sqlite import notes
from onerow.stores.sqlite.connections import Connections
from onerow.stores.sqlite.view_sql import ViewSql
from onerow.table_ports import VIEW


def sql(connections: Connections, mapping: TableMapping) -> str:
    """Return the statements that create a view, to be read or run by hand."""
    with connections.read() as connection:
        return "".join(f"{each};\n\n" for each in view_of(connection, mapping).create())


def view_of(connection: sqlite3.Connection, mapping: TableMapping) -> ViewSql:
    """Return the SQL of a view, with the title template of the published pipeline."""
    row = connection.execute(
        "SELECT json_extract(body, '$.title') FROM onerow_note WHERE kind = 'pipeline' AND name = ?",
        (mapping.pipeline,),
    ).fetchone()
    return ViewSql(mapping, title=(row and row[0]) or "")


def create(connections: Connections, mapping: TableMapping) -> None:
    """Create the view, or replace the one that onerow made under the same name, in one transaction."""
    with connections.write() as connection:
        existing = connection.execute(
            "SELECT type, name FROM sqlite_master WHERE name = ? COLLATE NOCASE AND type <> 'index'", (mapping.name,)
        ).fetchone()
        made = _made(connection)
        if existing and existing[1] in made and existing[1] != mapping.name:
            raise BadInput(
                f"there is a view {existing[1]} already, and SQLite takes {mapping.name} for the same name",
                fix=f"drop it: onerow sqlite view {existing[1]} --drop; or give the view another name",
                field="view",
            )
        if existing and mapping.name not in made:
            raise BadInput(
                f"there is a {existing[0]} {existing[1]} already",
                fix=f"adopt it: onerow sqlite adopt {existing[1]} --mapping FILE; or give the view another name",
                field="view",
            )
        build(connection, mapping)


def build(connection: sqlite3.Connection, mapping: TableMapping) -> None:
    """Create the view in the caller's transaction, and record it."""
    remove(connection, mapping)
    for each in view_of(connection, mapping).create():
        connection.execute(each)
    connection.execute(
        "INSERT INTO onerow_note (kind, name, version, body, updated_at) "
        "VALUES (?, ?, 1, ?, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))",
        (VIEW, mapping.name, msgspec.json.encode(mapping).decode()),
    )


def drop(connections: Connections, name: str) -> None:
    """Drop a view that onerow made, with its triggers and indexes."""
    with connections.write() as connection:
        made = _made(connection)
        if name not in made:
            raise BadInput(f"onerow made no view {name}", fix="see: onerow sqlite view --list", field="view")
        remove(connection, made[name])


def remove(connection: sqlite3.Connection, mapping: TableMapping) -> None:
    """Drop a view, if it exists, in the caller's transaction."""
    view = ViewSql(mapping)
    connection.execute(f"DROP VIEW IF EXISTS {view.view}")
    rows = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'index' AND substr(name, 1, length(:start)) = :start "
        "AND substr(name, length(:start) + 1) NOT GLOB '*[^0-9]*'",
        {"start": f"{view.index_prefix}_"},
    ).fetchall()
    for (name,) in rows:
        connection.execute(f'DROP INDEX "{name}"')
    notes.drop(connection, VIEW, [mapping.name])


def made(connections: Connections) -> list[TableMapping]:
    """Return the mappings of the views that onerow made, by name."""
    with connections.read() as connection:
        return list(_made(connection).values())


def _made(connection: sqlite3.Connection) -> dict[str, TableMapping]:
    return {note.name: msgspec.convert(note.body, TableMapping) for note in notes.read_all(connection, VIEW)}
