"""Titles by any part of them: an index of trigrams (FTS5), filled behind the backs of those who add.

It is filled from a mark upwards, a little at a time, so that adding a task costs nothing; what lies above the mark is
looked through as it is. Rows that are gone leave their trigrams behind: what the index names is looked up, never trusted.
"""

import sqlite3
from functools import cache

from onerow.stores.sqlite.door import Door

_MARK = "titled"
_STEP = 500
_MOST = 5_000
_TOO_MANY_GONE = 4


@cache
def available() -> bool:
    """Whether this SQLite can index text."""
    with sqlite3.connect(":memory:") as blank:
        try:
            blank.execute("CREATE VIRTUAL TABLE probe USING fts5(title, content='', tokenize='trigram', detail=none)")
        except sqlite3.OperationalError:
            return False
    return True


def tidy(door: Door) -> bool:
    """Index some more titles; whether there are still more."""
    if not available():
        return False
    with door.read() as connection:
        if _newest(connection) <= _mark(connection):
            return False
    with door.write() as connection:
        connection.execute(
            "CREATE VIRTUAL TABLE IF NOT EXISTS onerow_title "
            "USING fts5(title, content='', tokenize='trigram', detail=none)"
        )
        rows = connection.execute(
            "SELECT seq, title FROM task_queue WHERE seq > ? ORDER BY seq LIMIT ?", (_mark(connection), _STEP)
        ).fetchall()
        connection.executemany(
            "INSERT INTO onerow_title (rowid, title) VALUES (?, ?)",
            [(seq, title.casefold()) for seq, title in rows if title],
        )
        _set_mark(connection, rows[-1][0] if rows else _mark(connection))
    return len(rows) == _STEP


def note_removed(connection: sqlite3.Connection) -> None:
    """After rows were removed: numbers that may be given again are not indexed yet, and an index of ghosts goes."""
    mark, newest = _mark(connection), _newest(connection)
    if mark > newest:
        _set_mark(connection, newest)
    (kept,) = connection.execute("SELECT count(*) FROM (SELECT 1 FROM task_queue LIMIT ?)", (_MOST,)).fetchone()
    if kept < _MOST and mark > _TOO_MANY_GONE * _MOST:
        connection.execute("DROP TABLE IF EXISTS onerow_title")
        _set_mark(connection, 0)


def candidates(connection: sqlite3.Connection, part: str) -> list[int] | None:
    """The numbers of rows whose title may contain a casefolded part; None: walking the rows finds them sooner."""
    mark = _mark(connection)
    if len(part) < 3 or mark == 0 or not available():
        return None
    (tail,) = connection.execute(
        "SELECT count(*) FROM (SELECT 1 FROM task_queue WHERE seq > ? LIMIT ?)", (mark, _MOST)
    ).fetchone()
    if tail == _MOST:
        return None
    trigrams = sorted({part[place : place + 3] for place in range(len(part) - 2)})[:20]
    match = " AND ".join('"' + trigram.replace('"', '""') + '"' for trigram in trigrams)
    found = [
        seq
        for (seq,) in connection.execute(
            "SELECT rowid FROM onerow_title WHERE onerow_title MATCH ? AND rowid <= ? LIMIT ?", (match, mark, _MOST)
        )
    ]
    if len(found) == _MOST:
        return None
    new = connection.execute("SELECT seq FROM task_queue WHERE seq > ? AND onerow_has(title, ?)", (mark, part))
    return found + [seq for (seq,) in new]


def _mark(connection: sqlite3.Connection) -> int:
    row = connection.execute("SELECT value FROM onerow_meta WHERE key = ?", (_MARK,)).fetchone()
    return 0 if row is None else int(row[0])


def _set_mark(connection: sqlite3.Connection, mark: int) -> None:
    connection.execute(
        "INSERT INTO onerow_meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", (_MARK, mark)
    )


def _newest(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT coalesce(max(seq), 0) FROM task_queue").fetchone()[0])
