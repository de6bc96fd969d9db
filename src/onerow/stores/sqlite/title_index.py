"""Titles by any part of them: an index of trigrams (FTS5), filled behind the backs of those who add.

It is filled from a mark upwards, a little at a time, so that adding a task costs nothing; what lies above the mark is
looked through as it is. Rows that are gone leave their trigrams behind: what the index names is looked up, never trusted.
The index names rows by number, and a VACUUM numbers them anew: the row at the mark tells whether there was one.
"""

import sqlite3
import zlib
from functools import cache

from onerow.stores.sqlite.connections import Connections

_MARK, _ROW_AT_MARK = "titled", "titled_row"
_STEP = 500  # titles to index at once, of so many rows:
_MOST = 5_000
_TOO_MANY_GONE = 4
_NEXT = "SELECT rowid, title FROM task_queue WHERE rowid > ? ORDER BY rowid LIMIT ?"


@cache
def available() -> bool:
    """Whether this SQLite can index text."""
    with sqlite3.connect(":memory:") as blank:
        try:
            blank.execute("CREATE VIRTUAL TABLE probe USING fts5(title, content='', tokenize='trigram', detail=none)")
        except sqlite3.OperationalError:
            return False
    return True


def maintain(door: Connections) -> bool:
    """Index some more titles; whether there are still more."""
    if not available():
        return False
    with door.read() as connection:
        if 0 < _newest(connection) == _mark(connection):
            return False
    with door.write() as connection:
        mark = _mark(connection)
        if mark == 0:
            connection.execute("DROP TABLE IF EXISTS onerow_title")
        connection.execute(
            "CREATE VIRTUAL TABLE IF NOT EXISTS onerow_title "
            "USING fts5(title, content='', tokenize='trigram', detail=none)"
        )
        seen, up_to = connection.execute(
            f"SELECT count(*), coalesce(max(rowid), ?) FROM ({_NEXT})", (mark, mark, _MOST)
        ).fetchone()
        rows = connection.execute(
            f"SELECT rowid, title FROM ({_NEXT}) WHERE title <> '' LIMIT ?", (mark, _MOST, _STEP)
        ).fetchall()
        connection.executemany(
            "INSERT INTO onerow_title (rowid, title) VALUES (?, ?)",
            [(number, title.casefold()) for number, title in rows],
        )
        _set_mark(connection, rows[-1][0] if len(rows) == _STEP else up_to)
    return len(rows) == _STEP or seen == _MOST


def note_removed(connection: sqlite3.Connection) -> None:
    """After rows were removed: the mark stands at a row that is there, and an index of ghosts goes."""
    mark = _set(connection, _MARK)
    (below,) = connection.execute("SELECT coalesce(max(rowid), 0) FROM task_queue WHERE rowid <= ?", (mark,)).fetchone()
    (kept,) = connection.execute("SELECT count(*) FROM (SELECT 1 FROM task_queue LIMIT ?)", (_MOST,)).fetchone()
    if kept < _MOST and mark > _TOO_MANY_GONE * _MOST:
        below = 0
    if below != mark:
        _set_mark(connection, below)


def candidates(connection: sqlite3.Connection, part: str) -> list[int] | None:
    """The numbers of rows whose title may contain a casefolded part; None: walking the rows finds them sooner."""
    mark = _mark(connection)
    if len(part) < 3 or mark == 0 or not available():
        return None
    (tail,) = connection.execute(
        "SELECT count(*) FROM (SELECT 1 FROM task_queue WHERE rowid > ? LIMIT ?)", (mark, _MOST)
    ).fetchone()
    if tail == _MOST:
        return None
    trigrams = sorted({part[place : place + 3] for place in range(len(part) - 2)})[:20]
    match = " AND ".join('"' + trigram.replace('"', '""') + '"' for trigram in trigrams)
    found = [
        number
        for (number,) in connection.execute(
            "SELECT rowid FROM onerow_title WHERE onerow_title MATCH ? AND rowid <= ? LIMIT ?", (match, mark, _MOST)
        )
    ]
    if len(found) == _MOST:
        return None
    new = connection.execute("SELECT rowid FROM task_queue WHERE rowid > ? AND onerow_has(title, ?)", (mark, part))
    return found + [number for (number,) in new]


def _mark(connection: sqlite3.Connection) -> int:
    """Up to which row titles are indexed; 0 as well when rows have other numbers than when that was noted."""
    mark = _set(connection, _MARK)
    return mark if mark and _row_at(connection, mark) == _set(connection, _ROW_AT_MARK) else 0


def _set_mark(connection: sqlite3.Connection, mark: int) -> None:
    connection.executemany(
        "INSERT INTO onerow_meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        [(_MARK, mark), (_ROW_AT_MARK, _row_at(connection, mark))],
    )


def _set(connection: sqlite3.Connection, key: str) -> int:
    row = connection.execute("SELECT value FROM onerow_meta WHERE key = ?", (key,)).fetchone()
    return 0 if row is None else int(row[0])


def _row_at(connection: sqlite3.Connection, number: int) -> int:
    """A number by which to know the row again."""
    row = connection.execute("SELECT task_id FROM task_queue WHERE rowid = ?", (number,)).fetchone()
    return 0 if row is None else zlib.crc32(row[0].encode())


def _newest(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT coalesce(max(rowid), 0) FROM task_queue").fetchone()[0])
