"""Quarantine of unreadable rows, after an operation failed on them, so that other tasks keep running."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from onerow.core.corruption import NUMBERS, as_far_as_readable, problems, quarantine
from onerow.core.status import Status
from onerow.core.task import COLUMN, FIELDS, TIME_FIELDS
from onerow.core.times import read
from onerow.ports import Move, Swapped
from onerow.stores.sqlite import counts
from onerow.stores.sqlite.rows import COLUMNS
from onerow.stores.sqlite.swapping import swap_one

_TIMES = frozenset(TIME_FIELDS)
_FLAGS = frozenset({"cancel_requested", "own_retries"})
_MANY = 1_000

_SUSPECT = " OR ".join(
    [f"status NOT IN ({', '.join(repr(status.value) for status in Status)})"]
    + [f"typeof({COLUMN[field]}) IN ('text', 'blob', 'real')" for field in (*NUMBERS, *_FLAGS)]
    + [f"{COLUMN[field]} > {most}" for field, most in NUMBERS.items()]
)
# All text of a row as one value. A byte sequence that is not UTF-8 does not become UTF-8 by the line breaks between.
_TEXT = " || char(10) || ".join(
    f"coalesce({COLUMN[field]}, '')" for field in FIELDS if field not in NUMBERS and field not in _FLAGS
)


def set_aside(connection: sqlite3.Connection, ids: Sequence[Any], now: datetime) -> int:
    """Quarantine the unreadable ones of these rows; return how many. Call it inside a transaction."""
    done = 0
    for task_id in ids:
        with _any_text(connection):
            row = connection.execute(
                f"SELECT rowid, {COLUMNS} FROM task_queue WHERE task_id IN (?1, CAST(?1 AS TEXT))", (task_id,)
            ).fetchone()
        if row is None or not problems(found := as_far_as_readable(row[1:], _read)):
            continue
        after = quarantine(found, now)
        if after.task_id != found.task_id:
            connection.execute("UPDATE task_queue SET task_id = ? WHERE rowid = ?", (after.task_id, row[0]))
            found = replace(found, task_id=after.task_id)
        move = Move(found, after)
        if isinstance(swap_one(connection, move, now), Swapped):
            counts.write(connection, counts.of_moves([move]))
            done += 1
    return done


def suspects(connection: sqlite3.Connection) -> list[Any]:
    """Return the ids of rows with an invalid number or status, or text that is not UTF-8; this scans the whole table."""
    found = []
    with _any_text(connection):
        for task_id, suspect, text in connection.execute(f"SELECT task_id, {_SUSPECT}, {_TEXT} FROM task_queue"):
            if suspect or type(text) is bytes:
                found.append(task_id)
                if len(found) == _MANY:
                    break
    return found


@contextmanager
def _any_text(connection: sqlite3.Connection) -> Iterator[None]:
    """Let the connection return text that is not UTF-8 as bytes, instead of raising an error."""
    connection.text_factory = _text_or_bytes
    try:
        yield
    finally:
        connection.text_factory = str


def _text_or_bytes(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _read(field: str, value: Any) -> Any:
    if value is None:
        return None
    if field in _TIMES:
        return read(value)
    if field == "status":
        return Status(value)
    return bool(value) if field in _FLAGS and type(value) is int else value
