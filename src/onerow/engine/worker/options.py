"""The options of a worker, for functions that create one."""

from collections.abc import Sequence
from typing import TypedDict

from onerow.core.durations import Duration


class WorkerOptions(TypedDict, total=False):
    """Options of Worker; a test compares them."""

    concurrency: int
    interval: Duration
    grace: Duration
    phases: Sequence[str]
    until_idle: bool
    prestart: int | None
    republish: bool
    show_output: bool
