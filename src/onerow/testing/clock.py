"""A clock that goes on only when told to."""

from datetime import UTC, datetime, timedelta

from onerow.core.times import to_millis

START = datetime(2026, 1, 5, 9, tzinfo=UTC)
"""A Monday morning, unless a test begins elsewhere."""


class VirtualClock:
    """The store's clock in a rehearsal."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now = to_millis(start or START)

    def __call__(self) -> datetime:
        return self._now

    def to(self, moment: datetime) -> None:
        """Go on to a moment; never back."""
        self._now = max(self._now, to_millis(moment))

    def by(self, span: timedelta) -> None:
        self.to(self._now + span)
