"""Low-water marks: where the last claim of a phase ended, so that the next one needn't walk over what is gone.

Dead versions of claimed rows stay in the index until a vacuum, and for as long as anybody holds an old snapshot. A mark
skips them. It also skips what others put before it meanwhile, so that it lasts for a second at the most.

A claim of a limited phase has to know what is processing there, and the versions of what was processing are as dead. It
remembers the ids that it saw and when; the next one looks at those and at what started since.
"""

import threading
import time
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from onerow.core.status import WAITING
from onerow.core.task import Task
from onerow.ports import PhaseClaim

LASTS_FOR = 1.0

MOST_SEEN = 200
"""Processing tasks whose ids are remembered; of more than that all are counted each time."""

Phase = tuple[str, str]


class LowWaterMark(msgspec.Struct, frozen=True):
    """The last claim of a phase ended with this task; all before it was looked at then."""

    priority: int
    run_at: datetime
    task_id: str
    looked_at: float

    def is_before(self, task: Task) -> bool:
        """Whether the task stands behind the mark in the order of claims."""
        return (self.priority, self.run_at, self.task_id) < (task.priority, task.run_at, task.task_id)


class Seen(msgspec.Struct, frozen=True):
    """What was processing in a limited phase at a moment by the server's clock."""

    since: datetime
    task_ids: Sequence[str]
    looked_at: float  # when all that is processing was last counted


class LowWaterMarks:
    """The marks of one store, and whose turn it is where keys take turns; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._marks: dict[Phase, LowWaterMark] = {}
        self._seen: dict[Phase, Seen] = {}
        self._puts = 0
        self._keys: dict[Phase, str] = {}

    def last_key(self, want: PhaseClaim) -> str:
        """The key behind which those come whose turn it is to be looked at; '' before all."""
        return self._keys.get((want.pipeline, want.phase), "")

    def looked_at(self, want: PhaseClaim, key: str) -> None:
        """All keys up to this one have had their turn; '': all there are."""
        self._keys[want.pipeline, want.phase] = key

    @property
    def puts(self) -> int:
        """Changes when something was put where a mark might hide it; read it before a claim is sent."""
        return self._puts

    def of(self, want: PhaseClaim) -> LowWaterMark | None:
        """Where a claim of this phase may begin; None: at the very beginning."""
        mark = self._marks.get((want.pipeline, want.phase))
        return mark if mark is not None and time.monotonic() - mark.looked_at < LASTS_FOR else None

    def ended(self, want: PhaseClaim, began: LowWaterMark | None, last: Task | None, puts: int) -> None:
        """A claim of this phase that began at a mark ended with a task (None: nothing more was there)."""
        phase = (want.pipeline, want.phase)
        with self._lock:
            if last is None or puts != self._puts:
                self._marks.pop(phase, None)
            else:
                looked_at = time.monotonic() if began is None else began.looked_at
                self._marks[phase] = LowWaterMark(last.priority, last.run_at, last.task_id, looked_at)

    def seen(self, want: PhaseClaim) -> Seen | None:
        """What the last claim of this limited phase saw processing; None: count all that is."""
        seen = self._seen.get((want.pipeline, want.phase))
        return seen if seen is not None and time.monotonic() - seen.looked_at < LASTS_FOR else None

    def saw(self, want: PhaseClaim, before: Seen | None, since: datetime, task_ids: Sequence[str] | None) -> None:
        """A claim of this phase that relied on `before` saw these processing (None: too many to remember)."""
        phase = (want.pipeline, want.phase)
        with self._lock:
            if task_ids is None:
                self._seen.pop(phase, None)
            else:
                looked_at = time.monotonic() if before is None else before.looked_at
                self._seen[phase] = Seen(since, task_ids, looked_at)

    def forget(self, wants: Iterable[PhaseClaim]) -> None:
        """Claims of these phases collided: the next ones look at everything."""
        with self._lock:
            for want in wants:
                self._marks.pop((want.pipeline, want.phase), None)
                self._seen.pop((want.pipeline, want.phase), None)

    def put(self, tasks: Iterable[Task]) -> None:
        """These tasks can perhaps be claimed now: marks that would hide one of them are forgotten."""
        with self._lock:
            for task in tasks:
                if task.status is WAITING:
                    mark = self._marks.get((task.pipeline, task.phase))
                    if mark is not None and (task.priority, task.run_at) <= (mark.priority, mark.run_at):
                        del self._marks[task.pipeline, task.phase]
                        self._puts += 1
