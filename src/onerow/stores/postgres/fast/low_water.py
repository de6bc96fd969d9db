"""Low-water marks: where the last claim of a phase ended, so that the next claim skips dead index entries.

Dead row versions stay in the index until a vacuum, and for as long as any transaction holds an old snapshot. A low-water
mark skips them. It also hides tasks that other processes insert before it, so it is valid for one second at most.

A claim of a limited phase also has to know which tasks are processing, and the index of those has dead entries too. It
records the ids that it saw and when; the next claim reads those ids and the tasks that started since.
"""

import threading
import time
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from onerow.core.status import WAITING
from onerow.core.task import Task
from onerow.ports import PhaseClaim

LASTS_FOR = 1.0  # seconds

MAX_SEEN = 100
"""Up to this number of processing tasks, their ids are recorded; above it, each claim counts all of them."""
_MAX_SEEN_SIZE = 4_000  # bytes of ids: with them, a claim still fits into libpq's buffer

Phase = tuple[str, str]


class LowWaterMark(msgspec.Struct, frozen=True):
    """The task with which the last claim of a phase ended; all due tasks before it were scanned at `scanned_at`."""

    priority: int
    run_at: datetime
    task_id: str
    scanned_at: float

    def is_before(self, task: Task) -> bool:
        """Whether the task comes after the low-water mark in claim order."""
        return (self.priority, self.run_at, self.task_id) < (task.priority, task.run_at, task.task_id)


class Seen(msgspec.Struct, frozen=True):
    """The tasks that were processing in a limited phase at `since`, by the server's clock."""

    since: datetime
    task_ids: Sequence[str]
    scanned_at: float  # monotonic time of the last full count


class LowWaterMarks:
    """The low-water marks and round-robin cursors of one store; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._marks: dict[Phase, LowWaterMark] = {}
        self._seen: dict[Phase, Seen] = {}
        self._invalidations = 0
        self._keys: dict[Phase, str] = {}

    def last_key(self, want: PhaseClaim) -> str:
        """Return the round-robin cursor: the last limit_key scanned; '' starts over."""
        return self._keys.get((want.pipeline, want.phase), "")

    def set_last_key(self, want: PhaseClaim, key: str) -> None:
        """Move the round-robin cursor to this limit_key; '' starts over."""
        self._keys[want.pipeline, want.phase] = key

    @property
    def invalidations(self) -> int:
        """Counter of invalidations; read it before a claim is sent, to detect one during the claim."""
        return self._invalidations

    def start_of(self, want: PhaseClaim) -> LowWaterMark | None:
        """Return where a claim of this phase may start; None: scan from the beginning."""
        mark = self._marks.get((want.pipeline, want.phase))
        return mark if mark is not None and time.monotonic() - mark.scanned_at < LASTS_FOR else None

    def record_end(self, want: PhaseClaim, began: LowWaterMark | None, last: Task | None, invalidations: int) -> None:
        """Record that a claim which started at `began` ended with task `last` (None: it found all due tasks)."""
        phase = (want.pipeline, want.phase)
        with self._lock:
            if last is None or invalidations != self._invalidations:
                self._marks.pop(phase, None)
            else:
                scanned_at = time.monotonic() if began is None else began.scanned_at
                self._marks[phase] = LowWaterMark(last.priority, last.run_at, last.task_id, scanned_at)

    def seen(self, want: PhaseClaim) -> Seen | None:
        """Return the tasks that the last claim of this limited phase saw processing; None: count all."""
        seen = self._seen.get((want.pipeline, want.phase))
        return seen if seen is not None and time.monotonic() - seen.scanned_at < LASTS_FOR else None

    def record_seen(
        self, want: PhaseClaim, before: Seen | None, since: datetime, task_ids: Sequence[str] | None
    ) -> None:
        """Record the processing tasks that a claim saw (None: too many to record); it relied on `before`."""
        phase = (want.pipeline, want.phase)
        with self._lock:
            if task_ids is None or len("".join(task_ids).encode()) > _MAX_SEEN_SIZE:
                self._seen.pop(phase, None)
            else:
                scanned_at = time.monotonic() if before is None else before.scanned_at
                self._seen[phase] = Seen(since, task_ids, scanned_at)

    def forget(self, wants: Iterable[PhaseClaim]) -> None:
        """Drop all records of these phases after a slot collision, so that the next claims scan everything."""
        with self._lock:
            for want in wants:
                self._marks.pop((want.pipeline, want.phase), None)
                self._seen.pop((want.pipeline, want.phase), None)

    def invalidate(self, tasks: Iterable[Task]) -> None:
        """Drop the low-water marks that would hide one of these tasks from a claim."""
        with self._lock:
            for task in tasks:
                if task.status is WAITING:
                    mark = self._marks.get((task.pipeline, task.phase))
                    if mark is not None and (task.priority, task.run_at) <= (mark.priority, mark.run_at):
                        del self._marks[task.pipeline, task.phase]
                        self._invalidations += 1
