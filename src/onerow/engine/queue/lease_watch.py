"""Lease observation: a lease has ended when it was seen unchanged for its whole length on a monotonic clock as well.

The store's clock alone proves nothing: clocks step, machines are suspended, and while a store is unavailable or locked
for writing no live holder can extend its lease. See ADR 19.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from time import monotonic

import msgspec

from onerow.ports import Lease, LeaseRecord, Store

LOOK_EVERY = 1.0
_MOST_LEASES = 5_000
_NO_LEASE = Lease("-", 0)  # matches no row


class _Observation(msgspec.Struct, frozen=True):
    """A lease that has not changed since it was first seen."""

    record: LeaseRecord
    since: float  # in observed time of the watch
    needed: float  # seconds of observed time after which it has ended


class LeaseWatch:
    """Observes the leases that others hold, and returns those that have ended.

    Observed time is the time between two looks that the store answered. It leaves out outages, time spent waiting for
    the store, and all but a bounded part of a long gap, so an interruption pauses an observation and does not restart it.

    The clock is time.monotonic (CLOCK_MONOTONIC on Linux), which stands still while the machine is suspended: the
    holders on this machine stood still too. CLOCK_BOOTTIME would count that time against them.
    """

    def __init__(
        self,
        store: Store,
        lease_of: Callable[[str, str], timedelta],
        shortest: timedelta,
        *,
        is_ours: Callable[[LeaseRecord], bool],
        pipeline: str | None = None,
        phase: str | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """lease_of: the lease of a pipeline's phase. shortest: the shortest lease that is watched."""
        self._store = store
        self._lease_of = lease_of
        self._shortest = shortest
        self._is_ours = is_ours
        self._pipeline = pipeline
        self._phase = phase
        self._clock = clock
        self._observations: dict[str, _Observation] = {}
        self._answered_at: float | None = None  # when the last look ended, if the store answered it
        # A live holder sends a heartbeat within this time. In a longer gap this process was stopped or blocked, and
        # perhaps every holder was as well.
        self._longest_gap = shortest.total_seconds() / 3
        self.every = min(LOOK_EVERY, shortest.total_seconds() / 6)
        self.observed_for = 0.0

    def look(self, now: datetime) -> list[LeaseRecord]:
        """Observe the leases in force at `now` by the store's clock; return those that have ended, ours excepted."""
        if self._answered_at is not None:
            self.observed_for += min(self._clock() - self._answered_at, self._longest_gap)
        self._answered_at = None
        if any(self._is_suspect(each) for each in self._observations.values()):
            # Reads may be answered while writes wait (SQLite's write lock). A heartbeat that extends nothing waits where
            # a holder's heartbeat waits, and the time of that wait is not observed time.
            self._store.extend([_NO_LEASE], self._shortest)
        records = self._store.leases(pipeline=self._pipeline, phase=self._phase, limit=_MOST_LEASES)
        self._answered_at = self._clock()
        self._observations = {
            record.task_id: self._observe(record, now) for record in records if not self._is_ours(record)
        }
        return [each.record for each in self._observations.values() if self._has_ended(each, now)]

    def _observe(self, record: LeaseRecord, now: datetime) -> _Observation:
        known = self._observations.get(record.task_id)
        if known is not None and known.record == record:
            return known
        # The row does not say how long its lease is: at least what is left of it, and at least the lease of its phase,
        # because the store's clock may have stepped before the first look.
        needed = max(self._lease_of(record.pipeline, record.phase), record.leased_until - now)
        return _Observation(record, self.observed_for, needed.total_seconds())

    def _is_suspect(self, observation: _Observation) -> bool:
        # A live holder extends its lease when a third of it has passed, so after half of it a heartbeat is missing.
        return self.observed_for - observation.since >= observation.needed / 2

    def _has_ended(self, observation: _Observation, now: datetime) -> bool:
        return observation.record.leased_until <= now and self.observed_for - observation.since >= observation.needed
