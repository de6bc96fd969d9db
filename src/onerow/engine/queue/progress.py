"""Progress of a bulk operation, and the options that all bulk operations share."""

from collections.abc import Callable
from typing import TypedDict

import msgspec

from onerow.core.errors import OnerowError
from onerow.core.task import Task


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """Progress of a bulk operation; also stored as its record."""

    operation: str = msgspec.field(name="act")  # the name of the method
    by: str  # who asked
    matched: int  # how many tasks matched at the start
    done: int = 0  # how many tasks were changed
    refused: int = 0  # how many were not: by status, unique key or plan, or because others changed them too often
    problems: tuple[tuple[str, str], ...] = ()  # the first 20: (task id, reason)
    started_at: str = ""  # when it began
    ended_at: str = ""  # when it ended; '' while it runs
    whole: bool = False  # whether every matching task was processed
    name: str = ""  # the name of its record; '' if none is kept
    stopped_by: str = ""  # who asked it to stop, if it did
    seen_at: str = ""  # when its process last wrote this record
    interrupted: bool = False  # whether it has not ended, and its process has not written for a minute


Report = Callable[[Progress], None]
EachTask = Callable[[Task, OnerowError | None], None]


class BulkOptions(TypedDict, total=False):
    """Options of every bulk operation."""

    pace: str | None
    """Maximum number of tasks in a span ('20/min')."""
    limit: int | None
    """Maximum number of tasks."""
    progress: Report | None
    """Called about once a second."""
    each: EachTask
    """Called for every task with its new state and None, or with its old state and the error."""
