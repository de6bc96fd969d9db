"""Notes: small versioned records, written by compare-and-swap."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from functools import partial

import msgspec

from onerow.core.times import read, spell
from onerow.ports import Note
from onerow.stores.shared.readable_notes import readable_notes

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def read_all(connection: sqlite3.Connection, kind: str, since: str = "", before: str = "") -> list[Note]:
    """Return the notes of a kind, by name, optionally only names in [since, before)."""
    # As bytes: the driver would raise an error for the whole query if the text of one note is not UTF-8.
    sql = "SELECT CAST(name AS BLOB), CAST(body AS BLOB), version, updated_at FROM onerow_note WHERE kind = ? AND name >= ?"
    given = [kind, since]
    if before:
        sql += " AND name < ?"
        given.append(before)
    rows = connection.execute(f"{sql} ORDER BY name", given).fetchall()
    return readable_notes(kind, rows, partial(_note, kind), lambda row: row[0].decode(errors="backslashreplace"))


def _note(kind: str, row: tuple[bytes, bytes, int, str]) -> Note:
    name, body, version, at = row
    return Note(kind, name.decode(), _decode(body), version, read(at))


def write(connection: sqlite3.Connection, notes: Sequence[Note], now: datetime) -> list[bool]:
    """Write each note whose version is the stored one (0: it must not exist); return which were written."""
    answers = []
    for note in notes:
        body = _encode(note.body).decode()
        if note.version == 0:
            sql = (
                "INSERT INTO onerow_note (version, body, updated_at, kind, name) VALUES (1, ?, ?, ?, ?) "
                "ON CONFLICT DO UPDATE SET version = 1, body = excluded.body, updated_at = excluded.updated_at "
                "WHERE NOT json_valid(onerow_note.body)"  # it was ignored when it was read
            )
            written = connection.execute(sql, (body, spell(now), note.kind, note.name)).rowcount
        else:
            sql = "UPDATE onerow_note SET version = version + 1, body = ?, updated_at = ? WHERE kind = ? AND name = ? AND version = ?"
            written = connection.execute(sql, (body, spell(now), note.kind, note.name, note.version)).rowcount
        answers.append(written == 1)
    return answers


def drop(connection: sqlite3.Connection, kind: str, names: Sequence[str]) -> int:
    """Remove notes; return how many there were."""
    return connection.execute(
        "DELETE FROM onerow_note WHERE kind = ? AND name IN (SELECT value FROM json_each(?))",
        (kind, _encode(list(names)).decode()),
    ).rowcount
