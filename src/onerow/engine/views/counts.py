"""Task counts by pipeline, phase and status: from the store, or counted here and cached for some seconds."""

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from time import monotonic

import msgspec

from onerow.core.errors import OnerowError, StoreError
from onerow.core.filters import Filter, reads_text
from onerow.core.status import ENDS, OPEN, WAITING, Status
from onerow.ports import Note, Searchable, Store, StoreCounts, TaskCount

CENSUS = "census"
_CACHED_FOR = timedelta(seconds=10)
NOT_COUNTED = datetime(1970, 1, 1, tzinfo=UTC)
"""The time of counts that do not exist yet."""
_PAGE = 2_000
_MANY = 20_000  # tasks; fewer are counted by each read
_FIRST_WITHIN = 0.05  # seconds
_OLDEST = 15.0  # seconds


def count_store(store: Store, user_id: str | None) -> StoreCounts:
    """Count all tasks by pipeline, phase and status; one user's tasks are counted exactly, by index."""
    now = store.now()
    if user_id is not None:
        return StoreCounts(store.count(Filter(user_id=user_id)), now)
    if isinstance(store, Searchable):
        return store.store_counts()
    ended, at = _ended(store, now)
    return StoreCounts(store.count(Filter(statuses=OPEN)) + ended, at)


class BackgroundCounts:
    """Counts for a page that is read again and again: large counts are done elsewhere, and only the first reads wait.

    A count of a million waiting tasks takes from 0.1 s (SQLite) to some seconds (MongoDB). first_within: how many seconds
    a read waits for the first count; None: until it is done.
    """

    def __init__(
        self, submit: Callable[[Callable[[], None]], object], first_within: float | None = _FIRST_WITHIN
    ) -> None:
        self._submit = submit  # runs a function in another thread
        self._first_within = first_within
        self._lock = threading.Lock()
        self._counts: StoreCounts | None = None
        self._error: OnerowError | None = None
        self._under_way: threading.Event | None = None  # set when the count is done
        self._good_until = 0.0
        self.late = False  # the last read returned no counts, because the first count still runs

    def read(self, store: Store, user_id: str | None) -> StoreCounts:
        """Return the counts of now if they are small, else the latest; until the first is done, none, NOT_COUNTED."""
        self.late = False
        counts = self._counts
        if counts is not None and sum(line.count for line in counts.counts) <= _MANY:
            self._counts = counts = count_store(store, user_id)
            return counts
        with self._lock:
            done = self._under_way
            due = done is None and monotonic() >= self._good_until
            if due:
                self._under_way = done = threading.Event()
                self._error = None
        if due:
            self._submit(lambda: self._count(store, user_id))
        if counts is None and done is not None:
            done.wait(self._first_within)
        with self._lock:
            counts, error = self._counts, self._error
        if counts is None and error is not None:
            raise error
        self.late = counts is None
        return counts or StoreCounts([], NOT_COUNTED)

    def _count(self, store: Store, user_id: str | None) -> None:
        began = monotonic()
        counts, error = self._counts, None
        try:
            counts = count_store(store, user_id)
        except OnerowError as raised:
            error = raised
        finally:
            took = monotonic() - began
            with self._lock:
                done, self._under_way = self._under_way, None
                self._counts, self._error = counts, error
                # Counting takes about a hundredth of the time, more only if the counts would be too old otherwise.
                self._good_until = began + took + min(100 * took, _OLDEST) if error is None else 0.0
            if done is not None:
                done.set()


class Matching(msgspec.Struct, frozen=True):
    """Number of tasks that match a query; a lower bound if the time ran out before all were read."""

    tallies: list[TaskCount]
    looked_back_to: datetime | None = None  # the oldest created_at that was read when the time ran out

    @property
    def count(self) -> int:
        return sum(line.count for line in self.tallies)


def count_matching(store: Store, where: Filter, within: timedelta) -> Matching:
    """Count matching tasks; if a match requires reading each task, stop after `within`."""
    if not reads_text(where) or not isinstance(store, Searchable):
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
