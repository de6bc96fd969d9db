"""How many tasks stand where: as the store tells, or counted here and remembered for some seconds."""

from collections import Counter
from contextlib import suppress
from datetime import datetime, timedelta
from time import monotonic

import msgspec

from onerow.core.errors import StoreError
from onerow.core.status import ENDS, OPEN, WAITING, Status
from onerow.ports import Filter, Note, Searchable, Store, StoreCounts, TaskCount

CENSUS = "census"
_REMEMBERED_FOR = timedelta(seconds=10)
_PAGE = 2_000


def count_store(store: Store, user_id: str | None) -> StoreCounts:
    """Every task by place; one user's are counted exactly, since an index finds them."""
    now = store.now()
    if user_id is not None:
        return StoreCounts(store.count(Filter(user_id=user_id)), now)
    if isinstance(store, Searchable):
        return store.store_counts()
    ended, at = _ended(store, now)
    return StoreCounts(store.count(Filter(statuses=OPEN)) + ended, at)


class Matching(msgspec.Struct, frozen=True):
    """How many tasks match a query, by place; at least so many, where the time was over before all were looked at."""

    tallies: list[TaskCount]
    looked_back_to: datetime | None = None  # how far it came, when its time was over

    @property
    def count(self) -> int:
        return sum(tally.count for tally in self.tallies)


def count_matching(store: Store, where: Filter, within: timedelta) -> Matching:
    """Count the tasks that match; those that must be read to know whether they match, only for some time."""
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
            place = (task.pipeline, task.phase, task.status, task.parked)
            counts[place] += 1
            if task.status is WAITING:
                oldest[place] = min(task.run_at, oldest.get(place, task.run_at))
        after = found.next
        if after is None or monotonic() >= until:
            break
    tallies = [TaskCount(*place, number, oldest.get(place)) for place, number in sorted(counts.items())]
    if after is None:
        return Matching(tallies)
    return Matching(tallies, found.looked_back_to or found.tasks[-1].created_at)


def _ended(store: Store, now: datetime) -> tuple[list[TaskCount], datetime]:
    note = next(iter(store.notes(CENSUS)), None)
    if note is not None and note.updated_at is not None and now - note.updated_at < _REMEMBERED_FOR:
        return msgspec.convert(note.body, list[TaskCount]), note.updated_at
    counted = store.count(Filter(statuses=ENDS))
    with suppress(StoreError):  # it may be read-only to us: then everyone counts for himself
        store.write_notes([Note(CENSUS, "ended", msgspec.to_builtins(counted), note.version if note else 0)])
    return counted, now
