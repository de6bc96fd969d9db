"""Pages of tasks in an order, and searches that stop at a time limit.

A store supplies two functions: `read(limit, after, until)` returns the first matching tasks after one position and up
to another, and `end_of_batch(after, length)` the position of the last of the next `length` rows, matching or not.
"""

from collections.abc import Callable, Iterable
from datetime import timedelta
from time import monotonic

from onerow.core.filters import Order, Position, cursor_of, position_of, read_cursor
from onerow.core.task import Task
from onerow.ports import Page, Search

_FIRST_BATCH = 500
_LARGEST_BATCH = 16_000

Read = Callable[[int, Position | None, Position | None], Iterable[Task]]
EndOfBatch = Callable[[Position | None, int], Position | None]


def find_page(read: Read, limit: int, order: Order, after: str | None) -> Page:
    """See ports.Store.find."""
    tasks = list(read(limit + 1, read_cursor(after), None))
    if len(tasks) <= limit or limit < 1:
        return Page(tasks[:limit])
    return Page(tasks[:limit], cursor_of(position_of(tasks[limit - 1], order)))


def search(
    read: Read, end_of_batch: EndOfBatch | None, limit: int, order: Order, after: str | None, within: timedelta
) -> Search:
    """See ports.Searchable.search: scan in batches, each at most twice the size of the last, until the time limit.

    Without `end_of_batch` one read finds the matches: an index selects few rows.
    """
    if end_of_batch is None:
        page = find_page(read, limit, order, after)
        return Search(page.tasks, page.next)
    now = monotonic()
    until = now + within.total_seconds()
    position = read_cursor(after)
    found: list[Task] = []
    batch, scanned = _FIRST_BATCH, 0
    while True:
        end = end_of_batch(position, batch)
        found += read(limit + 1 - len(found), position, end)
        if len(found) > limit:
            return Search(found[:limit], cursor_of(position_of(found[limit - 1], order)))
        if end is None:
            return Search(found)
        scanned += batch
        position = end
        began, now = now, monotonic()
        if now >= until:
            return Search(found, cursor_of(position), position[0], scanned)
        in_time = int(batch * (until - now) / max(now - began, 1e-6))
        batch = max(_FIRST_BATCH, min(2 * batch, in_time, _LARGEST_BATCH))
