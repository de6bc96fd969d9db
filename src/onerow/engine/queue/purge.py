"""Clearing away what ended long ago; remembered keys stay behind as tombstones, children until their parent ended."""

from onerow.core import rules
from onerow.core.task import Task
from onerow.engine.output.files import LogFiles
from onerow.ports import Filter, Move, Store, Swapped

_PAGE = 500


def purge(store: Store, where: Filter, limit: int, files: LogFiles | None) -> int:
    """Remove ended tasks that match, at most `limit`; how many."""
    gone = 0
    after: str | None = None
    while gone < limit:
        page = store.find(where, limit=min(_PAGE, limit - gone), order="ended", after=after)
        gone += _purge(store, page.tasks, files)
        after = page.next
        if after is None:
            break
    return gone


def _purge(store: Store, tasks: list[Task], files: LogFiles | None) -> int:
    now = store.now()
    parents = {task.task_id: task for task in store.fetch([task.parent_id for task in tasks if task.parent_id])}
    free = [task for task in tasks if task.parent_id not in parents or parents[task.parent_id].ended]
    remembered = [task for task in free if task.held_until is not None and task.held_until > now]
    kept = {task.task_id for task in remembered}
    buried = store.swap([Move(task, rules.bury(task, now)) for task in remembered]) if remembered else []
    gone = store.remove([task for task in free if task.task_id not in kept])
    if files is not None:
        ids = {task.task_id for task in free}
        files.remove(ids - {task.task_id for task in store.fetch(list(ids)) if task.purged_at is None})
    return gone + sum(isinstance(answer, Swapped) for answer in buried)
