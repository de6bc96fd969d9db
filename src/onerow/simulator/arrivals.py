"""When tasks arrive: evenly or at random (Poisson) in segments of time with their own rates, or at recorded times."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import takewhile
from math import log
from random import Random

import msgspec

from onerow.core.rates import Rate

_MINUTE = 60_000
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
NEVER = 1 << 62
"""Later than every event of a simulation."""

Segment = tuple[int, int, float]
"""Start and end in milliseconds, and the arrivals per millisecond."""


class Arrivals(msgspec.Struct, frozen=True, kw_only=True):
    """Arrivals by rate or by record. Times count in milliseconds from the start of the simulation."""

    random: bool = True  # Poisson; else evenly spaced
    rate: Rate | None = None
    curve: tuple[float, ...] = ()  # factors of the rate by hour of the day, the first at midnight
    segments: tuple[Segment, ...] = ()  # instead of a rate
    times: Sequence[int] | None = None  # recorded, instead of both

    def stream(self, end: int, random: Random) -> Iterator[int]:
        """Yield the times of arrival before `end`, in order."""
        if self.times is not None:
            return takewhile(lambda at: at < end, self.times)
        segments = self._segments(end)
        return _poisson(segments, random) if self.random else _even(segments)

    def expected(self, end: int) -> float:
        """Return about how many tasks arrive before `end`."""
        if self.times is not None:
            return bisect_left(self.times, end)
        # A curve repeats every day: a plan of many years has too many minutes to add up.
        days, rest = divmod(end, _DAY) if self.curve else (0, end)
        one_day, last = (
            sum((stop - start) * rate for start, stop, rate in self._segments(until)) for until in (_DAY, rest)
        )
        return days * one_day + last

    def _segments(self, end: int) -> Iterator[Segment]:
        if self.rate is None:
            return ((start, min(stop, end), rate) for start, stop, rate in self.segments if start < end)
        rate = self.rate.count / self.rate.per
        if not self.curve:
            return iter([(0, end, rate)])
        return (
            (start, min(start + _MINUTE, end), rate * _factor(self.curve, start)) for start in range(0, end, _MINUTE)
        )


def counted(counts: Sequence[tuple[int, int, float]]) -> tuple[Segment, ...]:
    """Turn (start, end, number of arrivals) into segments."""
    return tuple((start, end, count / (end - start)) for start, end, count in counts if end > start)


def _factor(curve: Sequence[float], at: int) -> float:
    """Return the factor in the minute that begins at `at`; values between the middles of two hours are interpolated."""
    position = ((at % _DAY) + _MINUTE / 2) / _DAY * len(curve) - 0.5
    index = int(position // 1)
    share = position - index
    return curve[index % len(curve)] * (1 - share) + curve[(index + 1) % len(curve)] * share


def _poisson(segments: Iterator[Segment], random: Random) -> Iterator[int]:
    draw = random.random
    for start, end, rate in segments:
        if rate <= 0:
            continue
        # Exponential gaps have no memory, so each segment may begin anew.
        mean = 1 / rate
        at = start - log(1.0 - draw()) * mean
        while at < end:
            yield int(at)
            at -= log(1.0 - draw()) * mean


def _even(segments: Iterator[Segment]) -> Iterator[int]:
    due = 1.0  # the part of the next arrival that has accumulated: the first one comes at the start
    for start, end, rate in segments:
        if rate <= 0:
            continue
        at = start + (1.0 - due) / rate
        count = 0
        first = at
        while at < end:
            yield int(at)
            count += 1
            at = first + count / rate
        due = 1.0 - (at - end) * rate
