"""Output lines of tasks: in order and bounded; the oldest are dropped first and counted.

Lines that arrive together are stored as one row, a block: `seq` is the number of its first line, `text` its lines
joined by newlines. Programs often write hundreds of lines at once, and a row per line is slower.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter

import msgspec

from onerow.core.output_bound import OutputBound, byte_size
from onerow.core.times import read, spell
from onerow.ports import LogLine, LogPage

_encode = msgspec.json.Encoder().encode
_TASK_ID = attrgetter("task_id")
_SHARED = attrgetter("at", "phase", "attempt", "level")
_TEXT = attrgetter("text")
_BLOCK = 250
"""Maximum lines per block: reading one line reads its whole block."""

Block = tuple[str, int, str, str, int, str, str]
"""A row: task_id, seq, at, phase, attempt, level, text."""
Size = tuple[int, int, int, int]
"""One task's output: the next line's number, lines kept, bytes kept, lines dropped."""

_COLUMNS = "seq, at, phase, attempt, level, text"
_AT_ONCE = 16
_INSERT = f"INSERT INTO onerow_log (task_id, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"
_INSERTS = [_INSERT + ", (?, ?, ?, ?, ?, ?, ?)" * more for more in range(_AT_ONCE)]
_SIZES = (
    "SELECT task_id, next, lines, size, dropped FROM onerow_log_size WHERE task_id IN (SELECT value FROM json_each(?))"
)
_SET_SIZES = (
    "INSERT INTO onerow_log_size (task_id, next, lines, size, dropped) "
    "SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), "
    "json_extract(value, '$[3]'), json_extract(value, '$[4]') FROM json_each(?) WHERE TRUE "
    "ON CONFLICT (task_id) DO UPDATE SET next = excluded.next, lines = excluded.lines, size = excluded.size, "
    "dropped = excluded.dropped"
)


def append(connection: sqlite3.Connection, lines: Sequence[LogLine], bound: OutputBound) -> None:
    """Append lines; lines of the same task keep their order."""
    by_task: dict[str, list[LogLine]] = {}
    for task_id, group in groupby(lines, key=_TASK_ID):
        by_task.setdefault(task_id, []).extend(group)
    # Few statements, because each one releases the GIL and has to wait to get it back.
    known: dict[str, Size] = {
        task_id: (following, kept, size, dropped)
        for task_id, following, kept, size, dropped in connection.execute(_SIZES, (_encode(list(by_task)).decode(),))
    }
    blocks: list[Block] = []
    grown = {
        task_id: _add_blocks(blocks, task_id, its_lines, known.get(task_id, (1, 0, 0, 0)))
        for task_id, its_lines in by_task.items()
    }
    for first in range(0, len(blocks), _AT_ONCE):
        some = blocks[first : first + _AT_ONCE]
        connection.execute(_INSERTS[len(some) - 1], [value for block in some for value in block])
    sizes = [(task_id, *_bounded(connection, task_id, size, bound)) for task_id, size in grown.items()]
    connection.execute(_SET_SIZES, (_encode(sizes).decode(),))


def _add_blocks(blocks: list[Block], task_id: str, lines: list[LogLine], known: Size) -> Size:
    """Add one task's lines to the blocks to be written; return the new size of its output."""
    seq, kept, size, dropped = known
    for (at, phase, attempt, level), group in groupby(lines, key=_SHARED):
        texts = list(map(_TEXT, group))
        size += sum(map(byte_size, texts))
        for first in range(0, len(texts), _BLOCK):
            text = _joined(texts[first : first + _BLOCK])
            blocks.append((task_id, seq + first, spell(at), phase, attempt, level, text))
        seq += len(texts)
    return seq, kept + len(lines), size, dropped


def _bounded(connection: sqlite3.Connection, task_id: str, grown: Size, bound: OutputBound) -> Size:
    """Drop the oldest lines beyond the bound; return the new size of the output."""
    seq, kept, size, dropped = grown
    if bound.exceeded(kept, size):
        texts = (line.text for block in _blocks(connection, task_id, 0, "ASC") for line in block)
        gone, freed = bound.drop(kept, size, map(byte_size, texts))
        _drop_oldest(connection, task_id, seq - kept + gone)
        kept, size, dropped = kept - gone, size - freed, dropped + gone
    return seq, kept, size, dropped


def _joined(texts: list[str]) -> str:
    block = "\n".join(texts)
    if block.count("\n") >= len(texts):  # a line contains a newline: replace it with ␤
        block = "\n".join([text.replace("\n", "\u2424") for text in texts])
    return block


def _drop_oldest(connection: sqlite3.Connection, task_id: str, first: int) -> None:
    """Drop the lines before number `first`; the block that contains it is cut."""
    cut = connection.execute(
        f"SELECT {_COLUMNS} FROM onerow_log WHERE task_id = ? AND seq < ? ORDER BY seq DESC LIMIT 1", (task_id, first)
    ).fetchone()
    connection.execute("DELETE FROM onerow_log WHERE task_id = ? AND seq < ?", (task_id, first))
    if cut is not None:
        seq, *shared, text = cut
        if rest := text.split("\n")[first - seq :]:
            connection.execute(_INSERT, [task_id, first, *shared, "\n".join(rest)])


def read_page(connection: sqlite3.Connection, task_id: str, after: int, limit: int, tail: int | None) -> LogPage:
    """Return the lines after a number, or the last `tail` of them."""
    lines: list[LogLine] = []
    if tail is not None:
        for block in _blocks(connection, task_id, after, "DESC"):
            if len(lines) >= tail:
                break
            lines += reversed(block)
        lines = lines[:tail][::-1]
    else:
        for block in _blocks(connection, task_id, after, "ASC"):
            if len(lines) >= limit:
                break
            lines += block
        lines = lines[:limit]
    size = connection.execute("SELECT dropped FROM onerow_log_size WHERE task_id = ?", (task_id,)).fetchone()
    return LogPage(lines, lines[-1].seq if lines else after, size[0] if size else 0)


def _blocks(connection: sqlite3.Connection, task_id: str, after: int, direction: str) -> Iterator[list[LogLine]]:
    """Yield the lines after a number, block by block."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM onerow_log WHERE task_id = ?1 AND seq >= coalesce("
        "(SELECT max(seq) FROM onerow_log WHERE task_id = ?1 AND seq <= ?2), ?2) "
        f"ORDER BY seq {direction}",
        (task_id, after + 1),
    )
    for seq, at, phase, attempt, level, text in rows:
        moment = read(at)
        yield [
            LogLine(task_id, moment, phase, attempt, level, line, number)
            for number, line in enumerate(text.split("\n"), seq)
            if number > after
        ]


def remove(connection: sqlite3.Connection, task_ids: Sequence[str]) -> None:
    """Remove the output of tasks."""
    given = (_encode(list(task_ids)).decode(),)
    sizes = connection.execute("DELETE FROM onerow_log_size WHERE task_id IN (SELECT value FROM json_each(?))", given)
    if sizes.rowcount:  # most tasks have no output
        connection.execute("DELETE FROM onerow_log WHERE task_id IN (SELECT value FROM json_each(?))", given)
