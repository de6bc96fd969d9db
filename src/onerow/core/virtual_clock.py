"""A virtual clock, which tests (`onerow.testing`) and simulations (`onerow.simulator`) advance."""

from datetime import UTC, datetime, timedelta

from onerow.core.times import to_millis

START = datetime(2026, 1, 5, 9, tzinfo=UTC)
"""The default start: a Monday morning."""


class VirtualClock:
    """The clock of a memory store; it stands still until it is advanced."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now = to_millis(start or START)

    def __call__(self) -> datetime:
        return self._now

    def to(self, moment: datetime) -> None:
        """Advance to a time; never go back."""
        self._now = max(self._now, to_millis(moment))

    def by(self, span: timedelta) -> None:
        self.to(self._now + span)
