"""Resume parents and cancel children: at once for tasks that end in this worker, and by a sweep for all others."""

from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta
from time import monotonic

from onerow.core.filters import Filter
from onerow.core.status import CANCELLED, WAITING
from onerow.core.task import Task
from onerow.engine.queue.children import Children
from onerow.ports import Store

_SWEEP_EVERY = 5.0
_SWEEP_PACE = 20.0  # sweeps over many parked tasks take at most a twentieth of the time
_PAGE = 200
_CANCELLED_SINCE = timedelta(minutes=15)


class ChildrenSweeper:
    """Resume parents and cancel children; a parent is checked again after `pace` times the duration of its last check."""

    def __init__(self, store: Store, children: Children, worker: str, *, pace: float = 10.0) -> None:
        self._store = store
        self._children = children
        self._worker = worker
        self._pace = pace
        self._heard: deque[Task] = deque()
        self._due: dict[str, float] = {}  # parents to check, and the earliest time
        self._not_before: dict[str, float] = {}
        self._sweep_at = 0.0
        self._swept_for = 0.0
        self._swept_to: str | None = None
        self._cancelled_since: datetime | None = None
        self.wake: Callable[[], None] = lambda: None
        self.resumed: Callable[[], None] = lambda: None  # called when tasks may have become claimable

    def hear(self, task: Task) -> None:
        """Note a written task whose parent or children may be affected; safe from any thread."""
        self._heard.append(task)
        self.wake()

    def tick(self, now: datetime) -> float:
        """Do one round; return the seconds until the next."""
        while self._heard:
            self._concern(self._heard.popleft(), now)
        if monotonic() >= self._sweep_at:
            self._sweep(now)
        self._look(now)
        return max(0.0, min(self._sweep_at, *self._due.values(), self._sweep_at) - monotonic())

    def _concern(self, task: Task, now: datetime) -> None:
        if task.parent_id is not None and task.ended:
            self._put(task.parent_id)
        if task.awaiting == "children":
            self._put(task.task_id)
        if task.children is not None and task.status is CANCELLED:
            self._children.cancel_children(task.task_id, now, self._worker)

    def _put(self, parent: str) -> None:
        self._due.setdefault(parent, self._not_before.get(parent, 0.0))

    def _look(self, now: datetime) -> None:
        clock = monotonic()
        due = [parent for parent, at in self._due.items() if at <= clock]
        for start in range(0, len(due), _PAGE):
            some = due[start : start + _PAGE]
            began = monotonic()
            resumed, waiting = self._children.gather(some)
            took = monotonic() - began
            for parent in some:
                del self._due[parent]
                self._not_before.pop(parent, None)
            if self._pace:
                # All children of a parent are counted again after each end: the longer that takes, the less often.
                self._not_before |= dict.fromkeys(waiting, monotonic() + took * self._pace)
            for task in resumed:
                self._concern(task, now)
            if resumed:
                self.resumed()

    def _sweep(self, now: datetime) -> None:
        """Check a page of parked parents and recently cancelled tasks, for ends that no live worker has handled."""
        began = monotonic()
        where = Filter(statuses=frozenset({WAITING}), parked=True, awaiting="children")
        page = self._store.find(where, limit=_PAGE, order="due", after=self._swept_to)
        self._swept_to = page.next
        for task in page.tasks:
            self._put(task.task_id)
        since = self._cancelled_since or now - _CANCELLED_SINCE
        lately = Filter(statuses=frozenset({CANCELLED}), ended_after=since)
        for task in self._store.find(lately, limit=1000, order="ended").tasks:
            if task.children is not None:
                self._children.cancel_children(task.task_id, now, self._worker)
        self._cancelled_since = now - timedelta(minutes=1)
        self._swept_for += monotonic() - began
        self._sweep_at = monotonic()
        if page.next is None:
            self._sweep_at += max(_SWEEP_EVERY, _SWEEP_PACE * self._swept_for)
            self._swept_for = 0.0
