"""Change one task: read it, apply a rule, swap, and retry if the task was written concurrently."""

from collections.abc import Callable

from onerow.core.corruption import applied
from onerow.core.errors import CorruptRow, KeyTaken, LostRace, UnknownName
from onerow.core.task import Task
from onerow.ports import Conflict, Move, Stale, Store, Swapped

_TRIES = 50


def find_task(store: Store, task_id: str, user_id: str | None) -> Task:
    """Return the task; raise UnknownName if it does not exist or belongs to another user."""
    found = store.fetch([task_id])
    if not found or found[0].purged_at is not None or (user_id is not None and found[0].user_id != user_id):
        raise UnknownName(f"no task {task_id!r}; look at: onerow list", field="task_id")
    return found[0]


def act(store: Store, task_id: str, rule: Callable[[Task], Task], user_id: str | None = None) -> Task:
    """Apply a rule to a task, write the result and return it; nothing is written when the rule raises."""
    for _ in range(_TRIES):
        before = find_task(store, task_id, user_id)
        after = applied(rule, before, store.now())
        if after is before:
            return before
        match store.swap([Move(before, after)])[0]:
            case Swapped(task=task) if task.error_class == "corrupt" and before.error_class != "corrupt":
                raise CorruptRow(f"task {task_id} was set aside: {task.error}; run: onerow doctor", task_id=task_id)
            case Swapped(task=task):
                return task
            case Conflict(other_id=other):
                raise KeyTaken(task_id, other, before.unique_key or "")
            case Stale():
                continue
    raise LostRace(f"task {task_id} changed {_TRIES} times while we tried to act on it; try again")
