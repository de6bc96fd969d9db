"""Substring search in titles: a trigram index (FTS5) that is filled in the background.

Rows are indexed in rowid order, in small steps, so that adding a task costs nothing extra; newer rows are scanned.
Removed rows stay in the index, so every hit is checked against the table. A VACUUM changes rowids; a fingerprint of the
last indexed row detects that, and the index is rebuilt.
"""

import sqlite3
import zlib
from functools import cache

from onerow.stores.sqlite.connections import Connections

_INDEXED_UP_TO, _LAST_INDEXED = "titled", "titled_row"
_STEP = 500  # titles indexed per step, out of at most _MAX_ROWS rows
_MAX_ROWS = 5_000
_REBUILD_FACTOR = 4
_NEXT = "SELECT rowid, title FROM task_queue WHERE rowid > ? ORDER BY rowid LIMIT ?"


@cache
def available() -> bool:
    """Whether this SQLite has FTS5 with trigrams."""
    with sqlite3.connect(":memory:") as blank:
        try:
            blank.execute("CREATE VIRTUAL TABLE probe USING fts5(title, content='', tokenize='trigram', detail=none)")
        except sqlite3.OperationalError:
            return False
    return True


def maintain(connections: Connections) -> bool:
    """Index the next titles; return whether more are left."""
    if not available():
        return False
    with connections.read() as connection:
        if 0 < _newest(connection) == _indexed_up_to(connection):
            return False
    with connections.write() as connection:
        indexed = _indexed_up_to(connection)
        if indexed == 0:
            connection.execute("DROP TABLE IF EXISTS onerow_title")
        connection.execute(
            "CREATE VIRTUAL TABLE IF NOT EXISTS onerow_title "
            "USING fts5(title, content='', tokenize='trigram', detail=none)"
        )
        seen, up_to = connection.execute(
            f"SELECT count(*), coalesce(max(rowid), ?) FROM ({_NEXT})", (indexed, indexed, _MAX_ROWS)
        ).fetchone()
        rows = connection.execute(
            f"SELECT rowid, CAST(title AS TEXT) FROM ({_NEXT}) WHERE title <> '' LIMIT ?", (indexed, _MAX_ROWS, _STEP)
        ).fetchall()
        connection.executemany(
            "INSERT INTO onerow_title (rowid, title) VALUES (?, ?)",
            [(number, title.casefold()) for number, title in rows],
        )
        _set_indexed_up_to(connection, rows[-1][0] if len(rows) == _STEP else up_to)
    return len(rows) == _STEP or seen == _MAX_ROWS


def note_removed(connection: sqlite3.Connection) -> None:
    """After a removal, move the position to an existing row, or start over if most indexed rows are gone."""
    indexed = _read_meta(connection, _INDEXED_UP_TO)
    (below,) = connection.execute(
        "SELECT coalesce(max(rowid), 0) FROM task_queue WHERE rowid <= ?", (indexed,)
    ).fetchone()
    (kept,) = connection.execute("SELECT count(*) FROM (SELECT 1 FROM task_queue LIMIT ?)", (_MAX_ROWS,)).fetchone()
    if kept < _MAX_ROWS and indexed > _REBUILD_FACTOR * _MAX_ROWS:
        below = 0
    if below != indexed:
        _set_indexed_up_to(connection, below)


def candidates(connection: sqlite3.Connection, part: str) -> list[int] | None:
    """Return the rowids whose title may contain a casefolded part; None if a scan of the table is faster."""
    indexed = _indexed_up_to(connection)
    if len(part) < 3 or indexed == 0 or not available():
        return None
    (new_rows,) = connection.execute(
        "SELECT count(*) FROM (SELECT 1 FROM task_queue WHERE rowid > ? LIMIT ?)", (indexed, _MAX_ROWS)
    ).fetchone()
    if new_rows == _MAX_ROWS:
        return None
    trigrams = sorted({part[start : start + 3] for start in range(len(part) - 2)})[:20]
    match = " AND ".join('"' + trigram.replace('"', '""') + '"' for trigram in trigrams)
    found = [
        number
        for (number,) in connection.execute(
            "SELECT rowid FROM onerow_title WHERE onerow_title MATCH ? AND rowid <= ? LIMIT ?",
            (match, indexed, _MAX_ROWS),
        )
    ]
    if len(found) == _MAX_ROWS:
        return None
    new = connection.execute("SELECT rowid FROM task_queue WHERE rowid > ? AND onerow_has(title, ?)", (indexed, part))
    return found + [number for (number,) in new]


def _indexed_up_to(connection: sqlite3.Connection) -> int:
    """Return the last indexed rowid; 0 if nothing is indexed or the rowids have changed since."""
    indexed = _read_meta(connection, _INDEXED_UP_TO)
    return indexed if indexed and _fingerprint(connection, indexed) == _read_meta(connection, _LAST_INDEXED) else 0


def _set_indexed_up_to(connection: sqlite3.Connection, indexed: int) -> None:
    connection.executemany(
        "INSERT INTO onerow_meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        [(_INDEXED_UP_TO, indexed), (_LAST_INDEXED, _fingerprint(connection, indexed))],
    )


def _read_meta(connection: sqlite3.Connection, key: str) -> int:
    row = connection.execute("SELECT value FROM onerow_meta WHERE key = ?", (key,)).fetchone()
    return 0 if row is None else int(row[0])


def _fingerprint(connection: sqlite3.Connection, number: int) -> int:
    """Return a checksum of the task id at a rowid."""
    row = connection.execute("SELECT task_id FROM task_queue WHERE rowid = ?", (number,)).fetchone()
    return 0 if row is None else zlib.crc32(row[0].encode())


def _newest(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT coalesce(max(rowid), 0) FROM task_queue").fetchone()[0])
