"""Task counts by pipeline, phase and status: from the store, or counted here and cached for some seconds."""

from collections import Counter
from contextlib import suppress
from datetime import datetime, timedelta
from time import monotonic

import msgspec

from onerow.core.errors import StoreError
from onerow.core.filters import Filter
from onerow.core.status import ENDS, OPEN, WAITING, Status
from onerow.ports import Note, Searchable, Store, StoreCounts, TaskCount

CENSUS = "census"
_CACHED_FOR = timedelta(seconds=10)
_PAGE = 2_000


def count_store(store: Store, user_id: str | None) -> StoreCounts:
    """Count all tasks by pipeline, phase and status; one user's tasks are counted exactly, by index."""
    now = store.now()
    if user_id is not None:
        return StoreCounts(store.count(Filter(user_id=user_id)), now)
    if isinstance(store, Searchable):
        return store.store_counts()
    ended, at = _ended(store, now)
    return StoreCounts(store.count(Filter(statuses=OPEN)) + ended, at)


class Matching(msgspec.Struct, frozen=True):
    """Number of tasks that match a query; a lower bound if the time ran out before all were read."""

    tallies: list[TaskCount]
    looked_back_to: datetime | None = None  # the oldest created_at that was read when the time ran out

    @property
    def count(self) -> int:
        return sum(line.count for line in self.tallies)


def count_matching(store: Store, where: Filter, within: timedelta) -> Matching:
    """Count matching tasks; if a match requires reading each task, stop after `within`."""
    by_reading = where.text is not None or where.title_text is not None or where.error_text is not None or where.payload
    if not by_reading or not isinstance(store, Searchable):
        return Matching(store.count(where))
    until = monotonic() + within.total_seconds()
    counts: Counter[tuple[str, str, Status, bool]] = Counter()
    oldest: dict[tuple[str, str, Status, bool], datetime] = {}
    after: str | None = None
    while True:
        left = timedelta(seconds=max(0.0, until - monotonic()))
        found = store.search(where, limit=_PAGE, after=after, within=left)
        for task in found.tasks:
            group = (task.pipeline, task.phase, task.status, task.parked)
            counts[group] += 1
            if task.status is WAITING:
                oldest[group] = min(task.run_at, oldest.get(group, task.run_at))
        after = found.next
        if after is None or monotonic() >= until:
            break
    tallies = [TaskCount(*group, number, oldest.get(group)) for group, number in sorted(counts.items())]
    if after is None:
        return Matching(tallies)
    return Matching(tallies, found.looked_back_to or found.tasks[-1].created_at)


def _ended(store: Store, now: datetime) -> tuple[list[TaskCount], datetime]:
    note = next(iter(store.notes(CENSUS)), None)
    if note is not None and note.updated_at is not None and now - note.updated_at < _CACHED_FOR:
        return msgspec.convert(note.body, list[TaskCount]), note.updated_at
    counted = store.count(Filter(statuses=ENDS))
    with suppress(StoreError):  # the store may be read-only; then each process counts
        store.write_notes([Note(CENSUS, "ended", msgspec.to_builtins(counted), note.version if note else 0)])
    return counted, now
