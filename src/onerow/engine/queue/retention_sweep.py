"""Deletes ended tasks at the age that the queue or their pipeline sets, in small batches."""

from datetime import datetime, timedelta
from time import monotonic

from onerow.core.filters import Filter
from onerow.core.retention import Sweep
from onerow.engine.control import definitions
from onerow.engine.queue.purge import purge_ended
from onerow.engine.queue.queue import Queue

_BATCH = 1000  # tasks in one call, so that other roles of the thread are not delayed
_OVERLAP = timedelta(hours=1)
_WHOLE_EVERY = 3600.0  # seconds


class RetentionSweeper:
    """Deletes the ended tasks of one store; `delete_some` does one batch.

    Tasks that another pipeline keeps longer may be older than those to delete. So that they are not read again and again,
    a sweep starts an hour before the end of the last one, and once an hour at the oldest task.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._swept_to: dict[Sweep, datetime] = {}
        self._whole_at = 0.0

    def delete_some(self) -> int:
        """Delete at most one batch; return how many were deleted."""
        store, now = self._queue.store, self._queue.store.now()
        if monotonic() >= self._whole_at:
            self._swept_to.clear()
            self._whole_at = monotonic() + _WHOLE_EVERY
        plans = definitions.load_plans(store) | {each.name: each.plan for each in self._queue.pipelines.values()}
        plans = {name: self._queue.definitions.follow(plan) for name, plan in plans.items()}
        deleted = 0
        for sweep in self._queue.retention.sweeps(plans):
            where = Filter(
                pipeline=sweep.pipeline,
                statuses=sweep.statuses,
                ended_before=now - sweep.age,
                ended_after=self._swept_to.get(sweep),
            )
            found = purge_ended(store, where, _BATCH - deleted, self._queue.log_files)
            deleted += found
            if deleted >= _BATCH:
                break
            self._swept_to[sweep] = now - sweep.age - _OVERLAP
        return deleted
