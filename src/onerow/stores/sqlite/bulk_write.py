"""Many rows in one statement: what all of them share is bound once, what differs comes as a list of VALUES.

One statement for 500 rows costs a quarter of 500 executions of the same prepared statement.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from onerow.core.task import COLUMN
from onerow.stores.sqlite.rows import FOREIGN, to_sql

Column = tuple[Any, ...]

MOST = 800
_VARIABLES = 32_766  # that one statement may have, unless SQLite was built otherwise
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, MOST)


class Batch:
    """Rows of the same fields, told apart into what is shared and what varies."""

    def __init__(self, fields: Sequence[str], columns: Sequence[Column], always: int) -> None:
        """`always`: so many leading fields vary in any case."""
        count = len(columns[0])
        # count() compares in C, and mostly finds the very same object.
        alike = [index >= always and column.count(column[0]) == count for index, column in enumerate(columns)]
        self.shared = tuple(field for field, same in zip(fields, alike, strict=True) if same)
        self.varying = tuple(field for field, same in zip(fields, alike, strict=True) if not same)
        # Few sizes, so that few statements have to be prepared; the list is filled up with rows of nothing.
        self.size = next(size for size in _SIZES if size >= count)
        once = [to_sql(column[0]) for column, same in zip(columns, alike, strict=True) if same]
        each = [
            map(to_sql, column) if field in FOREIGN else column
            for field, column, same in zip(fields, columns, alike, strict=True)
            if not same
        ]
        nothing = [""] * ((self.size - count) * len(each))
        self.given = [*once, *chain.from_iterable(zip(*each, strict=True)), *nothing]


def batches(fields: Sequence[str], columns: Sequence[Column], always: int) -> Iterator[Batch]:
    """The rows in as few batches as SQLite takes: one, unless there are very many or they differ in nearly everything."""
    count = len(columns[0])
    if count <= MOST:
        batch = Batch(fields, columns, always)
        if len(batch.given) <= _VARIABLES:
            yield batch
            return
    middle = min(MOST, -(-count // 2))
    yield from batches(fields, [column[:middle] for column in columns], always)
    yield from batches(fields, [column[middle:] for column in columns], always)


@lru_cache(maxsize=512)
def insert_one_sql(fields: tuple[str, ...]) -> str:
    """Insert a row unless it is there already."""
    columns = ", ".join(COLUMN[field] for field in fields)
    return f"INSERT INTO task_queue ({columns}) VALUES ({', '.join('?' * len(fields))}) ON CONFLICT DO NOTHING"


@lru_cache(maxsize=512)
def insert_sql(shared: tuple[str, ...], varying: tuple[str, ...], size: int) -> str:
    """Insert rows that are new; the count tells whether all were."""
    columns = ", ".join(COLUMN[field] for field in (*shared, *varying))
    terms = ", ".join([*["?"] * len(shared), *(f"m.column{place}" for place in range(1, len(varying) + 1))])
    return (
        f"INSERT INTO task_queue ({columns}) SELECT {terms} FROM (VALUES {_values(len(varying), size)}) AS m "
        f"WHERE m.column1 <> '' ON CONFLICT DO NOTHING"
    )


@lru_cache(maxsize=512)
def update_sql(shared: tuple[str, ...], varying: tuple[str, ...], size: int) -> str:
    """Write to rows whose version (the second that varies) is one less than the new one."""
    sets = ["version = version + 1"]
    sets += [f"{COLUMN[field]} = ?" for field in shared]
    sets += [f"{COLUMN[field]} = m.column{place}" for place, field in enumerate(varying[2:], start=3)]
    return (
        f"UPDATE task_queue SET {', '.join(sets)} FROM (VALUES {_values(len(varying), size)}) AS m "
        f"WHERE task_queue.task_id = m.column1 AND task_queue.version = m.column2 - 1"
    )


def _values(width: int, size: int) -> str:
    row = f"({', '.join('?' * width)})"
    return ", ".join([row] * size)
