"""Removing ended tasks: held unique keys are kept as tombstones, children until their parent has ended."""

from collections.abc import Iterable
from datetime import timedelta

from msgspec.structs import replace

from onerow.core import rules
from onerow.core.errors import BadInput, UnknownName
from onerow.core.filters import Filter
from onerow.core.status import ENDS, Status
from onerow.core.suggest import did_you_mean
from onerow.core.task import Task
from onerow.engine.output.files import LogFiles
from onerow.engine.queue.adopt import note_purge
from onerow.engine.queue.compare_and_swap import apply, written
from onerow.ports import Store

_PAGE = 500


def ended_statuses(statuses: Iterable[Status | str]) -> frozenset[Status]:
    """Return the statuses of the tasks to purge; raise if one is not the status of ended tasks."""
    for status in statuses:
        if status not in list(Status):
            raise UnknownName(f"no status {status!r}", fix=did_you_mean(status, ENDS), field="status")
    chosen = frozenset(map(Status, statuses))
    if not chosen <= ENDS:
        raise BadInput("only tasks that have ended can be purged: completed, failed, cancelled", field="statuses")
    return chosen


def purge(store: Store, where: Filter, older_than: timedelta, limit: int, files: LogFiles | None) -> int:
    """Remove matching tasks that ended at least `older_than` ago, at most `limit`; return how many."""
    return purge_ended(store, replace(where, ended_before=store.now() - older_than), limit, files)


def purge_ended(store: Store, where: Filter, limit: int, files: LogFiles | None) -> int:
    """Remove matching tasks, all of which have ended, at most `limit`; return how many."""
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
    if removable:
        note_purge(store, {task.pipeline for task in removable})
    remembered = [task for task in removable if task.held_until is not None and task.held_until > now]
    remembered_ids = {task.task_id for task in remembered}
    buried = written(apply(store, remembered, lambda task: rules.bury(task, now), now))
    store.remove_log([task.task_id for task in buried])
    removed = store.remove([task for task in removable if task.task_id not in remembered_ids])
    if files is not None:
        ids = {task.task_id for task in removable}
        files.remove(ids - {task.task_id for task in store.fetch(list(ids)) if task.purged_at is None})
    return removed + len(buried)
