"""What a simulation measures: figures by period, and in total."""

from collections.abc import Mapping

import msgspec

from onerow.simulator.model import Workers

Waits = dict[int, int]
"""Histogram of wait times: bucket → count. One bucket per millisecond below 256, then 128 per doubling (within 1 %)."""

FINE = 256


def bucket(millis: int) -> int:
    """Return the bucket of a wait time."""
    if millis < FINE:
        return millis
    shift = millis.bit_length() - 8
    return (shift << 7) + (millis >> shift)


def middle(number: int) -> float:
    """Return the middle of a bucket in milliseconds."""
    if number < FINE:
        return number
    shift = (number >> 7) - 1
    return (((number & 127) + 128) << shift) + ((1 << shift) - 1) / 2


def quantile(waits: Mapping[int, int], share: float) -> float | None:
    """Return the quantile `share` in seconds; None if there is no wait."""
    left = share * sum(waits.values())
    for number in sorted(waits):
        left -= waits[number]
        if left <= 0:
            return middle(number) / 1000
    return None


class Counts(msgspec.Struct):
    """What happened in a period."""

    arrived: int = 0
    started: int = 0  # attempts
    completed: int = 0
    failed: int = 0
    retried: int = 0
    rescued: int = 0
    died: int = 0  # workers


class Period(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one period. backlog, running and workers are those at its end; times are in seconds."""

    at: float  # the end of the period
    arrived: int
    started: int
    completed: int
    failed: int
    retried: int
    rescued: int
    died: int
    backlog: int  # due and not started
    most_backlog: int  # in this period
    running: int
    workers: int  # ready ones
    starting: int
    wait_p50: float | None
    wait_p95: float | None
    wait_p99: float | None
    cost: float
    cost_per_thousand: float | None  # of the tasks completed in this period


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a simulation."""

    plan: str
    seed: int
    method: str  # 'fast path' or 'real rules'
    lasted: float
    arrived: int
    started: int
    completed: int
    failed: int
    retried: int
    rescued: int
    died: int
    backlog: int
    most_backlog: int
    most_workers: int  # of the ends of periods
    mean_workers: float  # paid ones
    slots: int  # of each worker
    lacked_slots: bool  # at some time a task was due and no slot was free
    reached_maximum: bool  # the scaling decision needed more workers than its maximum
    wait_p50: float | None
    wait_p95: float | None
    wait_p99: float | None
    cost: float
    cost_per_thousand: float | None
    periods: tuple[Period, ...]


class Recorder:
    """Collects the figures. A loop counts in `counts` and `waits`, and closes each period."""

    def __init__(self, workers: Workers) -> None:
        self.counts = Counts()
        self.waits: Waits = {}
        self.most_backlog = 0  # in this period, so far
        self.lacked_slots = False
        self._all_waits: Waits = {}
        self._cost_per_hour = workers.cost_per_hour
        self._slots = workers.slots
        self._claims_in = workers.claims_in.total_seconds()
        self._paid = 0  # milliseconds of workers before this period
        self.periods: list[Period] = []

    def close_period(self, at: int, *, backlog: int, running: int, workers: int, starting: int, paid: int) -> None:
        """End a period; `paid` is the time of all workers since the start, in milliseconds."""
        counts, waits = self.counts, self.waits
        cost = (paid - self._paid) / 3_600_000 * self._cost_per_hour
        self.periods.append(
            Period(
                at=at / 1000,
                **msgspec.structs.asdict(counts),
                backlog=backlog,
                most_backlog=self.most_backlog,
                running=running,
                workers=workers,
                starting=starting,
                wait_p50=self._quantile(waits, 0.5),
                wait_p95=self._quantile(waits, 0.95),
                wait_p99=self._quantile(waits, 0.99),
                cost=round(cost, 6),
                cost_per_thousand=_per_thousand(cost, counts.completed),
            )
        )
        self._add_to_all(waits)
        self._paid = paid
        self.most_backlog = backlog
        self.counts = Counts()
        waits.clear()

    def _quantile(self, waits: Mapping[int, int], share: float) -> float | None:
        """Return the quantile of the waits, each longer by the time that a claim takes."""
        found = quantile(waits, share)
        return None if found is None else found + self._claims_in

    def _add_to_all(self, waits: Mapping[int, int]) -> None:
        for number, count in waits.items():
            self._all_waits[number] = self._all_waits.get(number, 0) + count

    def result(
        self, plan: str, seed: int, method: str, end: int, still_waiting: Mapping[int, int], *, reached_maximum: bool
    ) -> Result:
        """Return the outcome; tasks that still wait at the end count with the time that they have waited so far."""
        self._add_to_all(still_waiting)
        periods = self.periods
        totals = {name: sum(getattr(each, name) for each in periods) for name in Counts.__struct_fields__}
        cost = self._paid / 3_600_000 * self._cost_per_hour
        return Result(
            plan=plan,
            seed=seed,
            method=method,
            lasted=end / 1000,
            **totals,
            backlog=periods[-1].backlog,
            most_backlog=max(each.most_backlog for each in periods),
            most_workers=max(each.workers for each in periods),
            mean_workers=round(self._paid / end, 2),
            slots=self._slots,
            lacked_slots=self.lacked_slots,
            reached_maximum=reached_maximum,
            wait_p50=self._quantile(self._all_waits, 0.5),
            wait_p95=self._quantile(self._all_waits, 0.95),
            wait_p99=self._quantile(self._all_waits, 0.99),
            cost=round(cost, 6),
            cost_per_thousand=_per_thousand(cost, totals["completed"]),
            periods=tuple(periods),
        )


def _per_thousand(cost: float, completed: int) -> float | None:
    return round(cost / completed * 1000, 6) if completed else None
