"""Write many rows in one statement: values that all rows share are bound once, the others are a list of VALUES.

One statement for 500 rows costs a quarter of 500 executions of the same prepared statement.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from onerow.core.task import COLUMN
from onerow.stores.sqlite.rows import CONVERTED, to_sql

Column = tuple[Any, ...]

MAX_ROWS = 800
_VARIABLES = 32_766  # SQLite's default limit of variables per statement
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, MAX_ROWS)


class Batch:
    """Rows of the same fields, split into fields with one shared value and fields that vary."""

    def __init__(self, fields: Sequence[str], columns: Sequence[Column], always: int) -> None:
        """Treat the first `always` fields as varying even if their values are equal."""
        count = len(columns[0])
        # count() compares in C, mostly by identity.
        alike = [index >= always and column.count(column[0]) == count for index, column in enumerate(columns)]
        self.shared = tuple(field for field, same in zip(fields, alike, strict=True) if same)
        self.varying = tuple(field for field, same in zip(fields, alike, strict=True) if not same)
        # A few fixed sizes keep the statement cache small; empty rows pad the list, and no statement writes them.
        self.size = next(size for size in _SIZES if size >= count)
        once = [to_sql(column[0]) for column, same in zip(columns, alike, strict=True) if same]
        each = [
            map(to_sql, column) if field in CONVERTED else column
            for field, column, same in zip(fields, columns, alike, strict=True)
            if not same
        ]
        padding = [""] * ((self.size - count) * len(each))
        self.given = [*once, *chain.from_iterable(zip(*each, strict=True)), *padding]


def batches(fields: Sequence[str], columns: Sequence[Column], always: int) -> Iterator[Batch]:
    """Split the rows into as few batches as the limits on rows and variables allow."""
    count = len(columns[0])
    if count <= MAX_ROWS:
        batch = Batch(fields, columns, always)
        if len(batch.given) <= _VARIABLES:
            yield batch
            return
    middle = min(MAX_ROWS, -(-count // 2))
    yield from batches(fields, [column[:middle] for column in columns], always)
    yield from batches(fields, [column[middle:] for column in columns], always)


@lru_cache(maxsize=512)
def insert_one_sql(fields: tuple[str, ...]) -> str:
    """Return SQL that inserts one row unless it exists."""
    columns = ", ".join(COLUMN[field] for field in fields)
    return f"INSERT INTO task_queue ({columns}) VALUES ({', '.join('?' * len(fields))}) ON CONFLICT DO NOTHING"


@lru_cache(maxsize=512)
def insert_sql(shared: tuple[str, ...], varying: tuple[str, ...], size: int) -> str:
    """Return SQL that inserts the rows that do not exist; the row count tells whether that was all of them."""
    columns = ", ".join(COLUMN[field] for field in (*shared, *varying))
    terms = ", ".join([*["?"] * len(shared), *(f"m.column{number}" for number in range(1, len(varying) + 1))])
    return (
        f"INSERT INTO task_queue ({columns}) SELECT {terms} FROM (VALUES {_values(len(varying), size)}) AS m "
        f"WHERE m.column1 <> '' ON CONFLICT DO NOTHING"
    )


@lru_cache(maxsize=512)
def update_sql(shared: tuple[str, ...], varying: tuple[str, ...], size: int) -> str:
    """Return SQL that updates rows whose stored version is one less than the new one, the second varying field."""
    sets = ["version = version + 1"]
    sets += [f"{COLUMN[field]} = ?" for field in shared]
    sets += [f"{COLUMN[field]} = m.column{number}" for number, field in enumerate(varying[2:], start=3)]
    return (
        f"UPDATE task_queue SET {', '.join(sets)} FROM (VALUES {_values(len(varying), size)}) AS m "
        f"WHERE task_queue.task_id = m.column1 AND task_queue.version = m.column2 - 1"
    )


@lru_cache(maxsize=16)
def delete_sql(size: int) -> str:
    """Return SQL that deletes rows by id and version; the given rows come first, each with one search."""
    return (
        f"DELETE FROM task_queue WHERE rowid IN (SELECT t.rowid FROM (VALUES {_values(2, size)}) AS m "
        f"CROSS JOIN task_queue AS t ON t.task_id = m.column1 AND t.version = m.column2)"
    )


def _values(width: int, size: int) -> str:
    row = f"({', '.join('?' * width)})"
    return ", ".join([row] * size)
