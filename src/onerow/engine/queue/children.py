"""Parents and children: effects across rows are applied after the commit and are safe to repeat."""

from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial

from onerow.core import rules
from onerow.core.corruption import applied
from onerow.core.errors import IllegalMove
from onerow.core.plan import Plan
from onerow.core.status import CANCELLED, ENDS, OPEN, Status
from onerow.core.steps import spawned_since
from onerow.core.task import Task
from onerow.engine.events.events import Events, events_of
from onerow.ports import Filter, Move, Page, Store, Swapped

_PAGE = 500


class Children:
    """Resumes parents whose children have all ended, and cancels the children of cancelled parents."""

    def __init__(self, store: Store, plan_of: Callable[[str], Plan | None], events: Events) -> None:
        self._store = store
        self._plan_of = plan_of
        self._events = events

    def tally(self, parent: Task) -> dict[Status, int]:
        """Number of children by status; children of an earlier generation are not counted."""
        since = spawned_since(parent)
        if since is None:
            return {}
        counts: dict[Status, int] = {}
        for line in self._store.count(Filter(parent_id=parent.task_id, created_after=since)):
            counts[line.status] = counts.get(line.status, 0) + line.count
        return counts

    def page(self, parent: Task, after: str | None) -> Page:
        """Return one page of its children, oldest first."""
        since = spawned_since(parent)
        if since is None:
            return Page([])
        where = Filter(parent_id=parent.task_id, created_after=since)
        return self._store.find(where, limit=200, order="oldest", after=after)

    def gather(self, parent_ids: list[str]) -> tuple[list[Task], list[str]]:
        """Resume parents whose children have all ended; return them, and the ids of those that still wait."""
        waiting: list[str] = []
        moves: list[Move] = []
        for parent in self._store.fetch(parent_ids):
            if parent.awaiting != "children" or (plan := self._plan_of(parent.pipeline)) is None:
                continue
            now = self._store.now()
            try:
                after = applied(partial(self._gathered, plan, now), parent, now)
            except IllegalMove:
                continue
            if after is parent:
                waiting.append(parent.task_id)
            else:
                moves.append(Move(parent, after))
        return list(self._write(moves)), waiting

    def cancel_children(self, parent_id: str, now: datetime, by: str) -> None:
        """Cancel all descendants of a task that have not ended."""
        parents = [parent_id]
        while parents:
            parent = parents.pop()
            after: str | None = None
            while True:
                page = self._store.find(
                    Filter(parent_id=parent, statuses=OPEN), limit=_PAGE, order="oldest", after=after
                )
                rule = partial(rules.cancel, now=now, by=by, note=f"with its parent {parent}")
                moves = [
                    Move(child, applied(rule, child, now, by=by)) for child in page.tasks if not child.cancel_requested
                ]
                for _ in self._write(moves):
                    pass
                parents += [child.task_id for child in page.tasks if child.children is not None]
                after = page.next
                if after is None:
                    break

    def _gathered(self, plan: Plan, now: datetime, parent: Task) -> Task:
        """Return the resumed parent, or the parent unchanged while some children have not ended."""
        counts = self.tally(parent)
        if not rules.children_ended(parent, counts):
            return parent
        return rules.gather(parent, plan, counts, now)

    def _write(self, moves: list[Move]) -> Iterator[Task]:
        for answer in self._store.swap(moves) if moves else []:
            if isinstance(answer, Swapped):
                for event in events_of(answer.task):
                    self._events.send(event)
                yield answer.task


def concerns(task: Task) -> bool:
    """Whether this state of a task may affect its parent or its children."""
    return (task.parent_id is not None and task.status in ENDS) or (
        task.children is not None and (task.status is CANCELLED or task.awaiting == "children")
    )
