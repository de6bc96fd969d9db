"""Pages of tasks in an order, and searches that stop at a time limit.

A store supplies two functions: `read(limit, after, until)` returns the first matching tasks after one position and up
to another, and `end_of_batch(after, length)` the position of the last of the next `length` rows, matching or not.
"""

import base64
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from time import monotonic
from typing import NamedTuple

import msgspec

from onerow.core import times
from onerow.core.errors import BadInput
from onerow.core.task import Task
from onerow.ports import Order, Page, Search

_FIRST_BATCH = 500
_LARGEST_BATCH = 16_000

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[str, str]).decode


class Sorting(NamedTuple):
    """The column of an order; rows with equal times are ordered by task id in the same direction."""

    column: str
    descending: bool

    @property
    def direction(self) -> str:
        return "DESC" if self.descending else "ASC"


SORTING: dict[Order, Sorting] = {
    "newest": Sorting("created_at", descending=True),
    "oldest": Sorting("created_at", descending=False),
    "due": Sorting("run_at", descending=False),
    "ended": Sorting("completed_at", descending=False),
    "latest": Sorting("completed_at", descending=True),
}

Position = tuple[datetime, str]
"""The position of a row in an order: its time and its id."""
Read = Callable[[int, Position | None, Position | None], Iterable[Task]]
EndOfBatch = Callable[[Position | None, int], Position | None]


def position_of(task: Task, order: Order) -> Position:
    return getattr(task, SORTING[order].column), task.task_id


def find_page(read: Read, limit: int, order: Order, after: str | None) -> Page:
    """See ports.Store.find."""
    tasks = list(read(limit + 1, _read_cursor(after), None))
    if len(tasks) <= limit or limit < 1:
        return Page(tasks[:limit])
    return Page(tasks[:limit], _cursor(position_of(tasks[limit - 1], order)))


def search(
    read: Read, end_of_batch: EndOfBatch, limit: int, order: Order, after: str | None, within: timedelta
) -> Search:
    """See ports.Searchable.search: scan in batches, each twice the size of the last, until the time limit."""
    until = monotonic() + within.total_seconds()
    position = _read_cursor(after)
    found: list[Task] = []
    batch, scanned = _FIRST_BATCH, 0
    while True:
        end = end_of_batch(position, batch)
        found += read(limit + 1 - len(found), position, end)
        if len(found) > limit:
            return Search(found[:limit], _cursor(position_of(found[limit - 1], order)))
        if end is None:
            return Search(found)
        scanned += batch
        position = end
        if monotonic() >= until:
            return Search(found, _cursor(position), position[0], scanned)
        batch = min(batch * 2, _LARGEST_BATCH)


def _cursor(position: Position) -> str:
    return base64.urlsafe_b64encode(_encode([times.spell(position[0]), position[1]])).decode()


def _read_cursor(text: str | None) -> Position | None:
    if text is None:
        return None
    try:
        moment, task_id = _decode(base64.urlsafe_b64decode(text))
        return times.read(moment), task_id
    except Exception:
        raise BadInput(f"{text!r} is not a cursor", fix="pass the `next` of a page unchanged", field="after") from None
