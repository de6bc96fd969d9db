"""What is known about a table before it is adopted, and what stops the adoption."""

import sqlite3
from collections.abc import Iterator
from typing import Any

from onerow.core.adoption import misfits
from onerow.core.suggest import did_you_mean
from onerow.core.table_mapping import FIELDS, TableMapping
from onerow.ports import Finding
from onerow.stores.sqlite.view_columns import quoted
from onerow.table_ports import SUFFIX

_TYPES = (
    ("INT", "integer"), ("CHAR", "text"), ("CLOB", "text"), ("TEXT", "text"), ("REAL", "number"), ("FLOA", "number"),
    ("DOUB", "number"), ("NUMERIC", "number"), ("BOOL", "boolean"), ("JSON", "json"), ("DATETIME", "datetime"), ("TIMESTAMP", "datetime"),
)  # fmt: skip
CAPTURE = "onerow_adopt_"
"""Triggers with this prefix record what programs write while the table is copied."""


def types_of(connection: sqlite3.Connection, mapping: TableMapping, name: str) -> dict[str, str]:
    """Return column → type, by what is declared; of times, by the first value that is stored."""
    declared = {
        row[1]: (row[2] or "").upper() for row in connection.execute(f"PRAGMA table_xinfo({quoted(name)})").fetchall()
    }
    found = {}
    times = {column.name for column in mapping.columns if FIELDS.get(column.field, ("",))[0] == "time"}
    for column, kind in declared.items():
        if column in times:
            found[column] = _time_type(connection, name, column)
        else:
            found[column] = next((type_ for word, type_ in _TYPES if word in kind), "text")
    return found


def _time_type(connection: sqlite3.Connection, name: str, column: str) -> str:
    row = connection.execute(
        f"SELECT {quoted(column)} FROM {quoted(name)} WHERE {quoted(column)} IS NOT NULL LIMIT 1"
    ).fetchone()
    value: Any = row and row[0]
    if isinstance(value, int | float):
        return "unix_ms" if value > 100_000_000_000 else "unix"
    return "time" if isinstance(value, str) and "T" in value else "datetime"


def findings(connection: sqlite3.Connection, mapping: TableMapping, types: dict[str, str]) -> Iterator[Finding]:
    """Yield what stops the adoption (bad), and what is not carried over (slow)."""
    mapped = {column.name for column in mapping.columns}
    for name in sorted(mapped - types.keys()):
        yield Finding(
            "bad", f"the table has no column {name}", did_you_mean(name, types, "leave it out of the mapping")
        )
    for name in types:
        if name not in mapped and name not in mapping.lost:
            yield Finding(
                "bad",
                f"the column {name} is not in the mapping",
                f'map it, for example {name} = "metadata.{name}", or give it up: lost = ["{name}"]',
            )
    for what, fix in misfits(mapping):
        yield Finding("bad", what, fix)
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (f"{mapping.table}{SUFFIX}",)).fetchone():
        yield Finding(
            "bad", f"there is a {mapping.table}{SUFFIX} already", "rename or drop it: the old table needs this name"
        )
    yield from _bonds(connection, mapping)
    yield from _indexes(connection, mapping, types)
    if mapping.key.name in types:
        ((nulls,),) = connection.execute(
            f"SELECT count(*) FROM {quoted(mapping.table)} WHERE {quoted(mapping.key.name)} IS NULL"
        ).fetchall()
        if nulls:
            yield Finding(
                "bad",
                f"{nulls:,} rows have NULL in {mapping.key.name}, the task's id",
                "give them an id or delete them",
            )
    column = mapping.column_of("status")
    if column is not None and column.name in types:
        rows = connection.execute(
            f"SELECT {quoted(column.name)}, count(*) FROM {quoted(mapping.table)} GROUP BY 1"
        ).fetchall()
        for word, count in rows:
            if word not in mapping.statuses:
                yield Finding(
                    "bad",
                    f"{count:,} rows have the status {word!r}, which is not in the mapping",
                    f'add {word} = "waiting" or another status under [statuses]',
                )


def _bonds(connection: sqlite3.Connection, mapping: TableMapping) -> Iterator[Finding]:
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()]
    for table in tables:
        for row in connection.execute(f"PRAGMA foreign_key_list({quoted(table)})").fetchall():
            if row[2].lower() == mapping.table.lower():
                yield Finding(
                    "bad",
                    f"the foreign key of {table} ({row[3]}) references it; a view can't be referenced",
                    f"make {table} again without that reference first",
                )
            elif table == mapping.table:
                yield Finding(
                    "slow",
                    f"no longer enforced: FOREIGN KEY ({row[3]}) REFERENCES {row[2]}",
                    "the program must delete the tasks of a deleted row",
                )
    rows = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?", (mapping.table,)
    ).fetchall()
    for (name,) in rows:
        if name not in mapping.lost and not name.startswith(CAPTURE):
            yield Finding(
                "bad",
                f"its trigger {name} would no longer fire",
                f'give it up: lost = ["{name}"]; or do its work elsewhere first',
            )


def _indexes(connection: sqlite3.Connection, mapping: TableMapping, types: dict[str, str]) -> Iterator[Finding]:
    info = connection.execute(f"PRAGMA table_xinfo({quoted(mapping.table)})").fetchall()
    primary = tuple(row[1] for row in sorted((row for row in info if row[5]), key=lambda row: row[5]))
    unique = [primary]
    indexed = {*mapping.indexes, (mapping.key.name,)}
    for _, name, is_unique, origin, partial in connection.execute(
        f"PRAGMA index_list({quoted(mapping.table)})"
    ).fetchall():
        columns = tuple(row[2] for row in connection.execute(f"PRAGMA index_info({quoted(name)})").fetchall() if row[2])
        if is_unique and not partial:
            unique.append(columns)
            if origin != "pk" and columns not in (mapping.unique, (mapping.key.name,)):
                yield Finding(
                    "slow",
                    f"no longer enforced: UNIQUE ({', '.join(columns)})",
                    f"make it the unique key: unique = {list(columns)}".replace("'", '"'),
                )
        if origin != "pk" and columns and not any(each[: len(columns)] == columns for each in indexed):
            yield Finding(
                "slow",
                f"the index on ({', '.join(columns)}) has no equivalent",
                f"add {list(columns)} to indexes".replace("'", '"'),
            )
    if (mapping.key.name,) not in unique:
        yield Finding(
            "bad",
            f"the column {mapping.key.name}, the task's id, is not unique",
            "map the primary key of the table to task_id",
        )
