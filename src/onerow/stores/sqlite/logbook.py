"""Output lines of tasks: in order, bounded, the oldest gone first and counted."""

import sqlite3
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter

import msgspec

from onerow.core.times import read, spell
from onerow.ports import LogLine, LogPage

_encode = msgspec.json.Encoder().encode
_SHARED = attrgetter("at", "phase", "attempt", "level")


class Bounds(msgspec.Struct, frozen=True):
    """How much of one task's output is kept."""

    lines: int
    size: int


def append(connection: sqlite3.Connection, lines: Sequence[LogLine], bounds: Bounds) -> None:
    """Lines of one task keep the order in which they were given."""
    by_task: dict[str, list[LogLine]] = {}
    for line in lines:
        by_task.setdefault(line.task_id, []).append(line)
    for task_id, its_lines in by_task.items():
        _append_to(connection, task_id, its_lines, bounds)


# One statement for many lines: executemany would let go of the interpreter's lock and wait for it again at each.
_INSERT = (
    "INSERT INTO onerow_log (task_id, seq, at, phase, attempt, level, text) "
    "SELECT ?, ? + key, ?, ?, ?, ?, value FROM json_each(?)"
)


def _append_to(connection: sqlite3.Connection, task_id: str, lines: list[LogLine], bounds: Bounds) -> None:
    row = connection.execute(
        "SELECT next, lines, size, dropped FROM onerow_log_size WHERE task_id = ?", (task_id,)
    ).fetchone()
    next_seq, kept, size, dropped = row or (1, 0, 0, 0)
    seq = next_seq
    for (at, phase, attempt, level), group in groupby(lines, key=_SHARED):
        texts = [line.text for line in group]
        connection.execute(_INSERT, (task_id, seq, spell(at), phase, attempt, level, _encode(texts).decode()))
        seq += len(texts)
    kept += len(lines)
    size += sum([len(line.text) for line in lines])
    if kept > bounds.lines or size > bounds.size:
        gone, gone_size = _drop_oldest(connection, task_id, kept - bounds.lines, size - bounds.size)
        kept, size, dropped = kept - gone, size - gone_size, dropped + gone
    connection.execute(
        "INSERT INTO onerow_log_size (task_id, next, lines, size, dropped) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (task_id) DO UPDATE SET next = excluded.next, lines = excluded.lines, size = excluded.size, "
        "dropped = excluded.dropped",
        (task_id, next_seq + len(lines), kept, size, dropped),
    )


def _drop_oldest(connection: sqlite3.Connection, task_id: str, lines: int, size: int) -> tuple[int, int]:
    """Drop so many lines, or more until so many characters are gone; how many of each went."""
    gone = gone_size = last = 0
    for seq, length in connection.execute(
        "SELECT seq, length(text) FROM onerow_log WHERE task_id = ? ORDER BY seq", (task_id,)
    ):
        if gone >= lines and gone_size >= size:
            break
        gone, gone_size, last = gone + 1, gone_size + length, seq
    connection.execute("DELETE FROM onerow_log WHERE task_id = ? AND seq <= ?", (task_id, last))
    return gone, gone_size


def read_page(connection: sqlite3.Connection, task_id: str, after: int, limit: int, tail: int | None) -> LogPage:
    """Lines after a position, or the last `tail`."""
    columns = "seq, at, phase, attempt, level, text"
    if tail is not None:
        rows = connection.execute(
            f"SELECT {columns} FROM onerow_log WHERE task_id = ? AND seq > ? ORDER BY seq DESC LIMIT ?",
            (task_id, after, tail),
        ).fetchall()[::-1]
    else:
        rows = connection.execute(
            f"SELECT {columns} FROM onerow_log WHERE task_id = ? AND seq > ? ORDER BY seq LIMIT ?",
            (task_id, after, limit),
        ).fetchall()
    size = connection.execute("SELECT dropped FROM onerow_log_size WHERE task_id = ?", (task_id,)).fetchone()
    lines = [
        LogLine(task_id, read(at), phase, attempt, level, text, seq) for seq, at, phase, attempt, level, text in rows
    ]
    return LogPage(lines, lines[-1].seq if lines else after, size[0] if size else 0)


def remove(connection: sqlite3.Connection, task_ids: Sequence[str]) -> None:
    """The output goes with its task."""
    given = (_encode(list(task_ids)).decode(),)
    connection.execute("DELETE FROM onerow_log WHERE task_id IN (SELECT value FROM json_each(?))", given)
    connection.execute("DELETE FROM onerow_log_size WHERE task_id IN (SELECT value FROM json_each(?))", given)
