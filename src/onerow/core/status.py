"""The five statuses, and the table of what may follow what."""

from collections.abc import Mapping
from enum import StrEnum


class Status(StrEnum):
    WAITING = "waiting"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    # As text, in C: an Enum's own hash is a Python function, and every move asks for it.
    __hash__ = str.__hash__


WAITING, PROCESSING, COMPLETED, FAILED, CANCELLED = Status

# A waiting row may become waiting again (rescheduled, passed to the next phase); nothing leaves cancelled.
NEXT: Mapping[Status, frozenset[Status]] = {
    WAITING: frozenset({WAITING, PROCESSING, COMPLETED, FAILED, CANCELLED}),
    PROCESSING: frozenset({PROCESSING, WAITING, COMPLETED, FAILED, CANCELLED}),
    COMPLETED: frozenset({COMPLETED, WAITING}),
    FAILED: frozenset({FAILED, WAITING, COMPLETED, CANCELLED}),
    CANCELLED: frozenset({CANCELLED}),
}

ENDS = frozenset({COMPLETED, FAILED, CANCELLED})
OPEN = frozenset({WAITING, PROCESSING})
