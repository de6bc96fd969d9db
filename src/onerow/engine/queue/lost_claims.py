"""Claims whose answer was lost: the rows are leased to a claimer that does not know it holds them."""

from collections.abc import Callable
from functools import partial
from time import monotonic

from onerow.core import rules
from onerow.core.filters import Filter
from onerow.core.status import PROCESSING
from onerow.core.task import Task
from onerow.engine.queue.compare_and_swap import apply, pages, written
from onerow.ports import Store

_FIRST_WAIT = 1.0
_MOST_ABANDONED = 1000  # before expired ones are removed


class LostClaims:
    """Finds rows that are leased to this claimer but not held by it, and hands them back without using up a retry.

    Requires a name that no other claimer uses, and that no claim is in progress. A server may execute a statement some
    time after the connection broke, so the search is repeated at growing intervals until a lease length has passed.
    """

    def __init__(self, store: Store, claimer: str, lease: float, holds: Callable[[Task], bool]) -> None:
        self._store = store
        self._claimer = claimer
        self._lease = lease
        self._holds = holds
        self._abandoned: dict[tuple[str, int], float] = {}  # leases left to a rescue, and since when
        self.expected = False  # whether such rows may exist
        self._next = 0.0  # when to search next
        self._wait = _FIRST_WAIT

    def expect(self) -> None:
        """Note that a claim failed and the store may still have executed it."""
        self.expected = True
        self._next = monotonic()
        self._wait = _FIRST_WAIT

    def abandon(self, task: Task) -> None:
        """Leave a lease to a rescue: it is not handed back before its end, because its work may still run."""
        clock = monotonic()
        if len(self._abandoned) >= _MOST_ABANDONED:
            self._abandoned = {key: since for key, since in self._abandoned.items() if clock - since < self._lease}
        self._abandoned[task.task_id, task.token] = clock

    @property
    def due(self) -> bool:
        """Whether the next search is due."""
        return self.expected and monotonic() >= self._next

    def look(self) -> int:
        """Hand back rows leased to this claimer but not held; return how many. On StoreError it stays due."""
        where = Filter(statuses=frozenset({PROCESSING}), leased_by=self._claimer)
        found = [task for tasks in pages(self._store, where, "oldest") for task in tasks if not self._is_held(task)]
        now = self._store.now()
        rule = partial(rules.hand_back, now=now, by=self._claimer, started=False)
        handed_back = written(apply(self._store, found, rule, now, by=self._claimer))
        self.expected = self._wait <= self._lease
        self._next = monotonic() + self._wait
        self._wait *= 2
        return len(handed_back)

    def _is_held(self, task: Task) -> bool:
        return (task.task_id, task.token) in self._abandoned or self._holds(task)
