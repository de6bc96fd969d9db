"""Adding tasks in the caller's own transaction: the rows become visible when it commits."""

import sqlite3
from pathlib import Path
from typing import Any

from onerow.core.errors import BadInput
from onerow.stores.shared.callers_django import django_connection


def callers_cursor(tx: Any, path: Path) -> sqlite3.Cursor:
    """Return a cursor in the caller's transaction; raise BadInput if `tx` is not a connection to this database file."""
    connection = _sqlite3_connection(tx)
    # `autocommit` exists since Python 3.12; True means that the driver never begins a transaction.
    begins_none = connection.isolation_level is None or getattr(connection, "autocommit", None) is True
    if begins_none and not connection.in_transaction:
        raise BadInput("tx: no transaction is open on this connection", fix="execute BEGIN IMMEDIATE first", field="tx")
    cursor = connection.cursor()
    cursor.row_factory = None
    databases = {name: file for _, name, file in cursor.execute("PRAGMA database_list").fetchall()}
    file = databases.get("main") or ""
    if not file or not path.exists() or not Path(file).samefile(path):
        raise BadInput(
            f"tx: this connection is to {file or 'a database in memory'}, not to the queue's {path}",
            fix="use a connection to the queue's own database",
            field="tx",
        )
    if not connection.in_transaction:
        # The driver would do this before the first write. Without it our savepoint would be the outermost transaction,
        # and releasing it would commit.
        cursor.execute(f"BEGIN {connection.isolation_level}")
    return cursor


def _sqlite3_connection(tx: Any) -> sqlite3.Connection:
    if isinstance(tx, sqlite3.Connection):
        return tx
    if (django := django_connection(tx, "sqlite")) is not None and isinstance(django.connection, sqlite3.Connection):
        return django.connection
    # A SQLAlchemy Session or Connection exposes the driver's connection.
    connection = tx.connection() if callable(getattr(tx, "connection", None)) else tx
    driver = getattr(getattr(connection, "connection", None), "driver_connection", None)
    if isinstance(driver, sqlite3.Connection):
        return driver
    raise BadInput(
        f"tx: {type(tx).__name__} is not a transaction",
        fix="pass the open connection of your transaction (sqlite3, SQLAlchemy, Django)",
        field="tx",
    )
