"""Notes: small versioned records, written by compare-and-swap like tasks."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from operator import itemgetter

import msgspec

from onerow.ports import Note
from onerow.stores.postgres.fast.binary import Texts, column, moment
from onerow.stores.postgres.pipelining import Connection, Cursor
from onerow.stores.postgres.statements import quoted
from onerow.stores.shared.readable_notes import readable_notes

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

_NOW = "coalesce(%s::timestamptz, date_trunc('milliseconds', clock_timestamp()))"


def read_all(connection: Connection, schema: str, kind: str, since: str = "", before: str = "") -> list[Note]:
    """Return the notes of a kind in order of name, optionally with since <= name < before."""
    sql = f"SELECT name, body, version, updated_at FROM {quoted(schema)}.onerow_note WHERE kind = %s AND name >= %s"
    given = [kind, since]
    if before:
        sql += " AND name < %s"
        given.append(before)
    rows = connection.execute(f"{sql} ORDER BY name", given, binary=True).fetchall()
    return readable_notes(kind, rows, partial(_note, kind), itemgetter(0))


def _note(kind: str, row: tuple[str, bytes, int, int]) -> Note:
    name, body, version, at = row
    return Note(kind, name, _decode(body), version, moment(at))


def write(connection: Connection, schema: str, notes: Sequence[Note], now: datetime | None) -> list[Cursor]:
    """Write each note if its version is the stored one (0: new); the rowcount of its cursor is then 1."""
    insert = (
        f"INSERT INTO {quoted(schema)}.onerow_note (version, body, updated_at, kind, name) "
        f"VALUES (1, %s, {_NOW}, %s, %s) ON CONFLICT DO NOTHING"
    )
    update = (
        f"UPDATE {quoted(schema)}.onerow_note SET version = version + 1, body = %s, updated_at = {_NOW} "
        f"WHERE kind = %s AND name = %s AND version = %s"
    )
    sent = {}
    # Sorted, so that two clients that write the same notes do not deadlock.
    for index in sorted(range(len(notes)), key=lambda index: (notes[index].kind, notes[index].name)):
        note = notes[index]
        given = (_encode(note.body).decode(), now, note.kind, note.name)
        if note.version == 0:
            sent[index] = connection.execute(insert, given)
        else:
            sent[index] = connection.execute(update, (*given, note.version))
    return [sent[index] for index in range(len(notes))]


def drop(connection: Connection, schema: str, kind: str, names: Sequence[str]) -> int:
    """Delete notes; return how many."""
    sql = f"DELETE FROM {quoted(schema)}.onerow_note WHERE kind = %s AND name = ANY (%s)"
    return connection.execute((sql), (kind, column(Texts, names))).rowcount
