"""What a handler may say besides returning: raised, it means not done.

Permanent, RateLimited and Snooze are Exceptions; Cancelled is a BaseException, so that `except Exception` in a
handler does not swallow it.
"""

from datetime import timedelta
from typing import Literal

from onerow.core.durations import Duration, parse_duration
from onerow.core.errors import BadInput


class Permanent(Exception):
    """Raised by a handler: trying again would not help."""


class RateLimited(Exception):
    """Raised by a handler: the other side says 'later'; `scope='phase'` holds the whole phase until then."""

    def __init__(
        self, after: Duration = timedelta(minutes=1), message: str = "", *, scope: Literal["task", "phase"] = "task"
    ) -> None:
        if scope not in ("task", "phase"):
            raise BadInput(f"scope must be 'task' or 'phase', not {scope!r}", field="scope")
        self.after = parse_duration(after, "after")
        self.scope = scope
        super().__init__(message or f"rate limited for {self.after}")


class Snooze(Exception):
    """Raised by a handler: not now; come back after `for_`; costs no retry."""

    def __init__(self, for_: Duration) -> None:
        self.for_ = parse_duration(for_, "for_")
        super().__init__(f"snoozed for {self.for_}")


class Cancelled(BaseException):
    """Raised inside a handler whose task was cancelled, timed out or lost its lease."""
