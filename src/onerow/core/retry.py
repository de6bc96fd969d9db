"""Retry policy: which error classes are retried, and after which deterministic back-off."""

from datetime import timedelta
from zlib import crc32

import msgspec

from onerow.core.durations import parse_duration
from onerow.core.errors import BadInput
from onerow.core.failure import ERROR_CLASSES, Failure
from onerow.core.suggest import did_you_mean

RETRIED = frozenset({"network", "limit", "resource", "unknown", "crash"})
"""Error classes that are retried by default; timeout, auth, permanent and corrupt are not."""

_LONGEST_WAIT = timedelta(days=1)


def _between(least: float, value: object, most: float) -> bool:
    return isinstance(value, int | float) and least <= value <= most


class Retry(msgspec.Struct, frozen=True, omit_defaults=True):
    """The retry policy of a phase: how often, after which wait, and for which error classes.

    wait: before the first retry ('5s', or seconds). factor: each further wait is this many times as long, at most a
    day. jitter: up to this part of a wait is added to it. classes: error class → whether it is retried, for example
    {'timeout': True}. max_rescues: a task whose worker dies or loses its lease is rescued, which costs no retry. After
    this many rescues in a row without an outcome of the task, the next one fails it (class crash).
    """

    max_retries: int = 3  # how often an attempt is repeated after a failure
    wait: str | float = "5s"
    factor: float = 3.0
    jitter: float = 0.1
    classes: dict[str, bool] = {}
    max_rescues: int = 20

    def __post_init__(self) -> None:
        if type(self.max_retries) is not int or not 0 <= self.max_retries <= 1000:
            raise BadInput(
                f"max_retries must be a whole number from 0 to 1000, not {self.max_retries!r}", field="max_retries"
            )
        if type(self.max_rescues) is not int or not 0 <= self.max_rescues <= 1000:
            raise BadInput(
                f"max_rescues must be a whole number from 0 to 1000, not {self.max_rescues!r}", field="max_rescues"
            )
        parse_duration(self.wait, "wait")
        if not _between(1, self.factor, 100):
            raise BadInput(f"factor must be between 1 and 100, not {self.factor!r}", field="factor")
        if not _between(0, self.jitter, 1):
            raise BadInput(f"jitter must be between 0 and 1, not {self.jitter!r}", field="jitter")
        for name in self.classes:
            if name not in ERROR_CLASSES:
                raise BadInput(f"unknown error class {name!r}", fix=did_you_mean(name, ERROR_CLASSES), field="classes")

    def allows(self, error_class: str) -> bool:
        return self.classes.get(error_class, error_class in RETRIED)

    def after(self, failure: Failure, tried: int, seed: str) -> timedelta | None:
        """Return the wait before the next attempt, or None if the error class is not retried."""
        if not self.allows(failure.error_class):
            return None
        if failure.after is not None:
            return failure.after
        base = self._delay(tried)
        # The jitter is a hash of task and try: rules stay deterministic, and the retries of different tasks spread out.
        share = crc32(f"{seed}:{tried}".encode()) / 0xFFFFFFFF
        return base * (1 + self.jitter * share)

    def delays(self, most: int) -> list[timedelta]:
        """Return the waits before the first retries, at most `most`, without jitter."""
        return [self._delay(tried) for tried in range(min(self.max_retries, most))]

    def _delay(self, tried: int) -> timedelta:
        try:
            return min(parse_duration(self.wait) * self.factor**tried, _LONGEST_WAIT)
        except OverflowError:
            return _LONGEST_WAIT
