"""How long something takes: a fixed time, a log-normal distribution or measured times, as a table of quantiles."""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from itertools import accumulate
from math import exp, log
from random import Random
from statistics import NormalDist

import msgspec

QUANTILES = 4096
"""The resolution of a distribution: a draw picks one of this number of equally likely durations."""


class Durations(msgspec.Struct, frozen=True):
    """Equally likely durations in milliseconds; one if the duration is fixed."""

    table: tuple[int, ...]

    @property
    def mean(self) -> float:
        return sum(self.table) / len(self.table)

    def draw(self, random: Random) -> Callable[[], int]:
        """Return a function that draws a duration; a fixed duration uses no random number."""
        table, size, draw = self.table, len(self.table), random.random
        if size == 1:
            only = table[0]
            return lambda: only
        return lambda: table[int(draw() * size)]


def fixed(millis: float, *, least: int = 1) -> Durations:
    return Durations((max(least, round(millis)),))


def log_normal(median: float, high: float, share: float) -> Durations:
    """Return the log-normal distribution with this median, of which `share` (such as 0.95) is below `high`."""
    sigma = log(high / median) / NormalDist().inv_cdf(share)
    if sigma == 0:
        return fixed(median)
    normal = NormalDist(log(median), sigma)
    return Durations(tuple(max(1, round(exp(normal.inv_cdf(each)))) for each in _shares()))


def measured(histogram: Mapping[int, float]) -> Durations:
    """Return the distribution of measured durations: milliseconds → how often."""
    values = sorted(value for value, count in histogram.items() if count > 0)
    if len(values) == 1:
        return fixed(values[0])
    seen = list(accumulate(histogram[value] for value in values))
    return Durations(tuple(max(1, values[bisect_left(seen, each * seen[-1])]) for each in _shares()))


def _shares() -> list[float]:
    return [(number + 0.5) / QUANTILES for number in range(QUANTILES)]
