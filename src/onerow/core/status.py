"""The five statuses and the table of allowed transitions."""

from collections.abc import Mapping
from enum import StrEnum


class Status(StrEnum):
    """`Status.FAILED == "failed"`: each member is also its text. waiting and processing, or one of the three ends."""

    WAITING = "waiting"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    # The hash of str, implemented in C: Enum.__hash__ is a Python function, and every move calls it.
    __hash__ = str.__hash__


WAITING, PROCESSING, COMPLETED, FAILED, CANCELLED = Status

# A waiting task may become waiting again (rescheduled, passed to the next phase); cancelled is final.
NEXT: Mapping[Status, frozenset[Status]] = {
    WAITING: frozenset({WAITING, PROCESSING, COMPLETED, FAILED, CANCELLED}),
    PROCESSING: frozenset({PROCESSING, WAITING, COMPLETED, FAILED, CANCELLED}),
    COMPLETED: frozenset({COMPLETED, WAITING}),
    FAILED: frozenset({FAILED, WAITING, COMPLETED, CANCELLED}),
    CANCELLED: frozenset({CANCELLED}),
}

ENDS = frozenset({COMPLETED, FAILED, CANCELLED})
OPEN = frozenset({WAITING, PROCESSING})
