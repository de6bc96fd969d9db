"""Parents and children: effects across rows are applied after the commit and are safe to repeat."""

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial

from onerow.core import rules
from onerow.core.errors import OnerowError
from onerow.core.filters import Filter
from onerow.core.plan import Plan
from onerow.core.status import CANCELLED, ENDS, OPEN, Status
from onerow.core.steps import spawned_since
from onerow.core.task import Task
from onerow.engine.events.events import Events, events_of
from onerow.engine.queue.compare_and_swap import apply, pages, written
from onerow.ports import Page, Store


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
        parents = [
            parent
            for parent in self._store.fetch(parent_ids)
            if parent.awaiting == "children" and self._plan_of(parent.pipeline) is not None
        ]
        now = self._store.now()
        results = apply(self._store, parents, lambda parent: self._gathered(parent, now), now)
        return self._report(results), [before.task_id for before, after in results if after is before]

    def cancel_children(self, parent_id: str, now: datetime, by: str) -> None:
        """Cancel all descendants of a task that have not ended."""
        parents = [parent_id]
        while parents:
            parent = parents.pop()
            rule = partial(rules.cancel, now=now, by=by, note=f"with its parent {parent}")
            for children in pages(self._store, Filter(parent_id=parent, statuses=OPEN), "oldest"):
                self._report(apply(self._store, children, rule, now, by=by))
                parents += [child.task_id for child in children if child.children is not None]

    def _gathered(self, parent: Task, now: datetime) -> Task:
        """Return the resumed parent, or the parent unchanged while some children have not ended."""
        counts, plan = self.tally(parent), self._plan_of(parent.pipeline)
        if plan is None or not rules.children_ended(parent, counts):
            return parent
        return rules.gather(parent, plan, counts, now)

    def _report(self, results: Iterable[tuple[Task, Task | OnerowError]]) -> list[Task]:
        tasks = written(results)
        for task in tasks:
            for event in events_of(task):
                self._events.send(event)
        return tasks


def concerns(task: Task) -> bool:
    """Whether this state of a task may affect its parent or its children."""
    return (
        (task.parent_id is not None and task.status in ENDS)
        or task.awaiting == "children"  # it may have none, or all of them may have ended
        or (task.children is not None and task.status is CANCELLED)
    )
