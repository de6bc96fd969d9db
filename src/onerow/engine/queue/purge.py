"""Removing ended tasks: held unique keys are kept as tombstones, children until their parent has ended."""

from onerow.core import rules
from onerow.core.task import Task
from onerow.engine.output.files import LogFiles
from onerow.ports import Filter, Move, Store, Swapped

_PAGE = 500


def purge(store: Store, where: Filter, limit: int, files: LogFiles | None) -> int:
    """Remove matching ended tasks, at most `limit`; return how many."""
    removed = 0
    after: str | None = None
    while removed < limit:
        page = store.find(where, limit=min(_PAGE, limit - removed), order="ended", after=after)
        removed += _purge(store, page.tasks, files)
        after = page.next
        if after is None:
            break
    return removed


def _purge(store: Store, tasks: list[Task], files: LogFiles | None) -> int:
    now = store.now()
    parents = {task.task_id: task for task in store.fetch([task.parent_id for task in tasks if task.parent_id])}
    removable = [task for task in tasks if task.parent_id not in parents or parents[task.parent_id].ended]
    remembered = [task for task in removable if task.held_until is not None and task.held_until > now]
    remembered_ids = {task.task_id for task in remembered}
    buried = store.swap([Move(task, rules.bury(task, now)) for task in remembered]) if remembered else []
    removed = store.remove([task for task in removable if task.task_id not in remembered_ids])
    if files is not None:
        ids = {task.task_id for task in removable}
        files.remove(ids - {task.task_id for task in store.fetch(list(ids)) if task.purged_at is None})
    return removed + sum(isinstance(answer, Swapped) for answer in buried)
