"""When a failed attempt is tried again: by class of error, with a back-off that anyone can compute."""

from datetime import timedelta
from zlib import crc32

import msgspec

from onerow.core.durations import parse_duration
from onerow.core.errors import BadInput
from onerow.core.failure import ERROR_CLASSES, Failure

RETRIED = frozenset({"network", "limit", "resource", "unknown", "crash"})
"""Classes tried again unless the phase says otherwise; timeout, auth, permanent and corrupt are not."""

_LONGEST_WAIT = timedelta(days=1)


def _between(least: float, value: object, most: float) -> bool:
    return isinstance(value, int | float) and least <= value <= most


class Retry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A phase's policy: how often, after how long ('5s', or seconds), and for which classes of error."""

    max_retries: int = 3
    wait: str | float = "5s"
    factor: float = 3.0
    jitter: float = 0.1
    classes: dict[str, bool] = {}

    def __post_init__(self) -> None:
        if type(self.max_retries) is not int or not 0 <= self.max_retries <= 1000:
            raise BadInput(
                f"max_retries must be a whole number from 0 to 1000, not {self.max_retries!r}", field="max_retries"
            )
        parse_duration(self.wait, "wait")
        if not _between(1, self.factor, 100):
            raise BadInput(f"factor must be between 1 and 100, not {self.factor!r}", field="factor")
        if not _between(0, self.jitter, 1):
            raise BadInput(f"jitter must be between 0 and 1, not {self.jitter!r}", field="jitter")
        for name in self.classes:
            if name not in ERROR_CLASSES:
                raise BadInput(f"unknown error class {name!r}; one of {', '.join(ERROR_CLASSES)}", field="classes")

    def allows(self, error_class: str) -> bool:
        return self.classes.get(error_class, error_class in RETRIED)

    def after(self, failure: Failure, tried: int, seed: str) -> timedelta | None:
        """How long to wait before the next try, or None when this class is not retried."""
        if not self.allows(failure.error_class):
            return None
        if failure.after is not None:
            return failure.after
        try:
            base = parse_duration(self.wait) * self.factor**tried
        except OverflowError:
            base = _LONGEST_WAIT
        base = min(base, _LONGEST_WAIT)
        # The same task and try always wait as long: a rule has no dice, and neighbours still spread out.
        share = crc32(f"{seed}:{tried}".encode()) / 0xFFFFFFFF
        return base * (1 + self.jitter * share)
