"""Outcomes of a handler other than a plain result: exceptions to raise, and values to return (Jump, Finish).

Permanent, RateLimited, Snooze, CancelTask and SkipPhase are Exceptions; Cancelled and Parked are BaseExceptions, so
that `except Exception` in a handler does not swallow them.
"""

from datetime import timedelta
from typing import Any, Literal

import msgspec

from onerow.core.durations import Duration, parse_duration
from onerow.core.errors import BadInput


class Permanent(Exception):
    """Raised by a handler: a retry would not help."""


class RateLimited(Exception):
    """Raised by a handler: a remote service limits the rate. The task is retried later, which costs a retry.

    after: when the service accepts requests again, from now on. message: stored as the error.
    """

    def __init__(
        self, after: Duration = timedelta(minutes=1), message: str = "", *, scope: Literal["task", "phase"] = "task"
    ) -> None:
        if scope not in ("task", "phase"):
            raise BadInput(f"scope must be 'task' or 'phase', not {scope!r}", field="scope")
        self.after: timedelta = parse_duration(after, "after")
        self.scope = scope
        super().__init__(message or f"rate limited for {self.after}")


class Snooze(Exception):
    """Raised by a handler: run the task again later; costs no retry."""

    def __init__(self, for_: Duration, reason: str = "", *, scope: Literal["task", "phase"] = "task") -> None:
        if scope not in ("task", "phase"):
            raise BadInput(f"scope must be 'task' or 'phase', not {scope!r}", field="scope")
        self.for_: timedelta = parse_duration(for_, "for_")
        self.scope = scope
        super().__init__(reason or f"snoozed for {self.for_}")


class CancelTask(Exception):
    """Raised by a handler: end the task as cancelled; the text is the reason. Its children are cancelled too."""


class SkipPhase(Exception):
    """Raised by a handler: leave this phase without a result; the text is the reason. The next phase follows."""


CHOSEN = (CancelTask, SkipPhase, Snooze)
"""Exceptions that are no failures; in an exception group without a failure, the first one of this order decides."""


class MiddlewareFailed(Exception):
    """A middleware raised an exception of its own; `error` counts as if the handler had raised it."""

    def __init__(self, name: str, error: BaseException) -> None:
        self.name = name
        self.error = error
        super().__init__(f"middleware {name} raised {type(error).__name__}")


class Cancelled(BaseException):
    """Raised inside a handler whose task was cancelled, timed out or lost its lease."""


class WaitExpired(Exception):
    """Raised by `ctx.wait` and `ctx.join` at their deadline; if the handler doesn't catch it, its class is timeout."""


class ChildrenFailed(Permanent):
    """Raised by `ctx.join(all_must_succeed=True)` when a child did not complete."""


class Parked(BaseException):
    """Raised inside a handler to end the attempt and park the task until a signal or its children arrive."""

    def __init__(self, name: str, awaiting: str, timeout: timedelta | None) -> None:
        self.name = name
        self.awaiting = awaiting
        self.timeout = timeout
        super().__init__(f"parked for {awaiting}")


class Asleep(Parked):
    """Raised inside a handler to end the attempt; the task runs again after the sleep."""

    def __init__(self, name: str, for_: timedelta) -> None:
        super().__init__(name, "time", for_)
        self.for_ = for_


class Jump(msgspec.Struct, frozen=True):
    """Returned by a handler: continue with a later phase and skip the phases between.

    limit_key: the task's limit key from there on; None keeps the one that it has, "" removes it.
    """

    phase: str  # the phase to go on with
    result: Any = None
    limit_key: str | None = None


class Finish(msgspec.Struct, frozen=True):
    """Returned by a handler: complete the task without running the remaining phases."""

    result: Any = None
