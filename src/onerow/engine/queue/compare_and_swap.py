"""Change tasks: apply a rule, compare and swap, and retry what was written concurrently. For one task and for many."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import count
from typing import Protocol

from onerow.core import rules
from onerow.core.corruption import applied
from onerow.core.errors import (
    BadInput,
    CorruptRow,
    IllegalMove,
    KeyTaken,
    LeaseLost,
    LostRace,
    OnerowError,
    UnknownName,
)
from onerow.core.filters import Filter, Order
from onerow.core.status import PROCESSING
from onerow.core.task import Task
from onerow.ports import Conflict, Move, Page, Store, Swapped

Rule = Callable[[Task], Task]
_TRIES = 50


def apply(
    store: Store,
    tasks: Iterable[Task],
    rule: Rule,
    now: datetime,
    *,
    by: str = "",
    if_dead: bool = False,
    remove: Callable[[Task], bool] = lambda task: False,
    refusals: type[OnerowError] | tuple[type[OnerowError], ...] = IllegalMove,
) -> list[tuple[Task, Task | OnerowError]]:
    """Apply a rule to each task and write the results in one call; return each task with its new state or its error.

    A task that the rule returns unchanged is not written. Errors: one of `refusals`, raised by the rule; KeyTaken;
    LostRace if the task was written concurrently. An unreadable row is quarantined. if_dead: write only expired leases.
    remove: whether a task, as the rule returns it, is deleted instead of written.
    """
    results: list[tuple[Task, Task | OnerowError]] = []
    moves: dict[int, Move] = {}
    for task in tasks:
        result: Task | OnerowError
        try:
            result = applied(rule, task, now, by=by)
            if result is not task:
                moves[len(results)] = Move(task, result, if_dead, remove(result))
        except refusals as error:
            result = error
        results.append((task, result))
    answers = store.swap(list(moves.values())) if moves else []
    for (index, move), answer in zip(moves.items(), answers, strict=True):
        before = move.before
        match answer:
            case Swapped(task=after):
                results[index] = (before, after)
            case Conflict(other_id=other):
                results[index] = (before, KeyTaken(before.task_id, other, before.unique_key or ""))
            case _:
                results[index] = (before, _lost_race(before))
    return results


def written(results: Iterable[tuple[Task, Task | OnerowError]]) -> list[Task]:
    """Return the tasks that `apply` has written."""
    return [after for before, after in results if isinstance(after, Task) and after is not before]


def update(
    store: Store,
    read: Callable[[], Task],
    rule: Rule,
    *,
    known: Task | None = None,
    tries: Iterable[int] = range(_TRIES),
    remove: Callable[[Task], bool] = lambda task: False,
) -> Task:
    """Apply a rule to one task, write the result and return it; read the task again after each lost race."""
    before = read() if known is None else known
    for _ in tries:
        ((_, result),) = apply(store, [before], rule, store.now(), remove=remove)
        if isinstance(result, Task):
            return result
        if not isinstance(result, LostRace):
            raise result
        before = read()
    raise _lost_race(before)


def update_held(
    store: Store,
    task: Task,
    rule: Callable[[Task, datetime], Task],
    remove: Callable[[Task], bool] = lambda task: False,
) -> Task:
    """Like `update`, for the holder of a lease; raise LeaseLost if it was lost before the rule's result was written."""

    def read() -> Task:
        found = store.fetch([task.task_id])
        if not found and remove(after := rule(task, store.now())):
            return after  # this holder deleted it; only the answer was lost
        if found and found[0].token == task.token and found[0].status is PROCESSING:
            return found[0]
        written = rules.recorded(found[0], task, partial(rule, task)) if found else None
        if written is None:
            raise lease_lost(task)
        return written

    def rule_if_held(current: Task) -> Task:
        return rule(current, store.now()) if current.status is PROCESSING else current

    return update(store, read, rule_if_held, known=task, tries=count(), remove=remove)


def operate(store: Store, task_id: str, rule: Rule, user_id: str | None = None) -> Task:
    """Apply the rule of a manual operation to a task, write the result and return it."""
    seen: list[Task] = []

    def read() -> Task:
        seen.append(find_task(store, task_id, user_id))
        return seen[-1]

    after = update(store, read, rule)
    check_readable(seen[-1], after)
    return after


def find_task(store: Store, task_id: str, user_id: str | None) -> Task:
    """Return the task; raise UnknownName if it does not exist or belongs to another user."""
    return find_tasks(store, [task_id], user_id)[0]


def find_tasks(store: Store, ids: Sequence[str], user_id: str | None) -> list[Task]:
    """Return the tasks in the order of their ids; raise UnknownName if one does not exist or is another user's."""
    for task_id in ids:
        _check_id(task_id)
    found = {
        task.task_id: task
        for task in store.fetch(ids)
        if task.purged_at is None and (user_id is None or task.user_id == user_id)
    }
    for task_id in ids:
        if task_id not in found:
            raise UnknownName(f"no task {task_id!r}", fix="look at: onerow list", field="task_id")
    return [found[task_id] for task_id in ids]


def _check_id(task_id: object) -> None:
    if not isinstance(task_id, str):
        hint = "; pass task.task_id" if isinstance(task_id, Task) else ""
        raise BadInput(f"task_id must be text, not {type(task_id).__name__}{hint}", field="task_id")


def check_readable(before: Task, after: Task) -> None:
    """Raise CorruptRow if the task was quarantined instead of changed by the rule."""
    if after.error_class == "corrupt" and before.error_class != "corrupt":
        raise CorruptRow(
            f"task {after.task_id} was quarantined: {after.error}", fix="run: onerow doctor", task_id=after.task_id
        )


def lease_lost(task: Task) -> LeaseLost:
    return LeaseLost(
        f"the lease on task {task.task_id} expired or was taken; nothing was written",
        fix="ask for a longer lease_for, or call extend() in time",
    )


def _lost_race(task: Task) -> LostRace:
    return LostRace(f"task {task.task_id} was changed by others at each try; nothing was written")


class Findable(Protocol):
    """A store, or a queue of one user."""

    def find(self, where: Filter, *, limit: int, order: Order, after: str | None) -> Page: ...


def pages(source: Findable, where: Filter, order: Order, size: int = 500) -> Iterator[Sequence[Task]]:
    """Iterate over all matching tasks, one page at a time."""
    after: str | None = None
    while True:
        page = source.find(where, limit=size, order=order, after=after)
        yield page.tasks
        if (after := page.next) is None:
            return
