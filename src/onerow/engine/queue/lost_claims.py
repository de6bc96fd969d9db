"""Claims whose answers were lost: the rows are leased to a claimer that does not know of them."""

from collections.abc import Callable
from time import monotonic

from onerow.core import rules
from onerow.core.status import PROCESSING
from onerow.core.task import Task
from onerow.ports import Filter, Move, Store, Swapped

_PAGE = 500
_FIRST_WAIT = 1.0


class LostClaims:
    """Finds rows that are leased to this claimer and that it does not hold, and hands them back at no cost.

    Only for a name that no other claimer uses, and only while no claim is under way. A server may carry out what it was
    sent some time after the connection broke, so looks are repeated at growing intervals until a lease has passed.
    """

    def __init__(self, store: Store, claimer: str, lease: float, holds: Callable[[Task], bool]) -> None:
        self._store = store
        self._claimer = claimer
        self._lease = lease
        self._holds = holds
        self._next: float | None = None  # when to look; None: every claim was answered
        self._wait = _FIRST_WAIT

    def expect(self) -> None:
        """A claim failed, and the store may have carried it out."""
        self._next = monotonic()
        self._wait = _FIRST_WAIT

    @property
    def expected(self) -> bool:
        """Whether there may be such rows."""
        return self._next is not None

    @property
    def due(self) -> bool:
        """Whether it is time to look."""
        return self._next is not None and monotonic() >= self._next

    def look(self) -> int:
        """Hand back what is leased to us and not held; how many. Raises StoreError, and is then due again."""
        where = Filter(statuses=frozenset({PROCESSING}), leased_by=self._claimer)
        found: list[Task] = []
        after: str | None = None
        while True:
            page = self._store.find(where, limit=_PAGE, order="oldest", after=after)
            found += [task for task in page.tasks if not self._holds(task)]
            if (after := page.next) is None:
                break
        now = self._store.now()
        moves = [Move(task, rules.hand_back(task, now, by=self._claimer, started=False)) for task in found]
        answers = self._store.swap(moves) if moves else []
        self._next = monotonic() + self._wait if self._wait <= self._lease else None
        self._wait *= 2
        return sum(isinstance(answer, Swapped) for answer in answers)
