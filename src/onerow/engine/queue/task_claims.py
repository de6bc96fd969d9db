"""Claim and settle tasks by their ids, with answers of True or False, for programs that are written around such calls."""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from onerow.core.errors import LeaseLost
from onerow.core.status import CANCELLED
from onerow.engine.queue.lease import Leased
from onerow.engine.queue.puller import Puller
from onerow.engine.queue.scope import Scope
from onerow.engine.queue.task_claims_async import TaskClaimsAsync
from onerow.pipelines.pipeline import Pipeline


class TaskClaims(TaskClaimsAsync):
    """Claims tasks of one phase by id, and holds them until they are settled or it is closed.

    It keeps the token of each of its claims and extends the leases while it lives. A call about a task that it does not
    hold changes nothing and returns False. Limits, pauses and due times apply as for a worker.
    """

    def __init__(self, scope: Scope, pipeline: Pipeline | str, phase: str | None) -> None:
        self._scope = scope
        self._pipeline = pipeline
        self._phase = phase
        self._own_name = f"claims-{uuid4().hex[:12]}"
        self._lock = threading.Lock()
        self._pullers: dict[tuple[str, float | None], Puller] = {}

    def try_claim(self, task_id: str, worker_id: str, lease_seconds: float = 14_400) -> bool:
        """Lease a waiting task, atomically; False if it is missing, running, ended, parked or not due.

        worker_id: stored as `leased_by`. lease_seconds: a shorter lease is enough for long work, because it is
        extended; it decides how soon another worker gets the task if this process dies.
        """
        return self._claim(task_id, worker_id, lease_seconds)

    def mark_processing(self, task_id: str) -> bool:
        """Like `try_claim`, under a name of its own and with the lease of the phase."""
        return self._claim(task_id, self._own_name, None)

    def complete(self, task_id: str, result: Any = None) -> bool:
        """Finish the phase of a task that this object holds; return whether it did."""
        lease = self._held(task_id)
        return lease is not None and _kept(lambda: lease.complete(result))

    def fail(self, task_id: str, error: BaseException | str, *, retry: bool = True) -> bool:
        """Fail the attempt at a task that this object holds; the queue retries it by itself if its policy allows.

        retry: False fails the task at once.
        """
        lease = self._held(task_id)
        return lease is not None and _kept(lambda: lease.fail(error, retry=retry))

    def is_cancel_requested(self, task_id: str) -> bool:
        """Whether the task was cancelled, or its cancellation was requested; False if there is no such task."""
        found = self._scope.store.fetch([task_id])
        mine = [task for task in found if self._scope.user_id in (None, task.user_id)]
        return any(task.cancel_requested or task.status is CANCELLED for task in mine)

    def close(self) -> None:
        """Hand back the tasks that are not settled."""
        with self._lock:
            pullers, self._pullers = list(self._pullers.values()), {}
        for puller in pullers:
            puller.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _claim(self, task_id: str, worker: str, lease_seconds: float | None) -> bool:
        with self._lock:
            puller = self._pullers.get((worker, lease_seconds))
            if puller is None:
                puller = Puller(self._scope, self._pipeline, self._phase, lease_seconds, worker)
                self._pullers[worker, lease_seconds] = puller
        return bool(puller.claim(1, ids=[task_id]))

    def _held(self, task_id: str) -> Leased | None:
        with self._lock:
            pullers = list(self._pullers.values())
        return next((lease for puller in pullers if (lease := puller.held.get(task_id)) is not None), None)


def _kept(settle: Callable[[], object]) -> bool:
    try:
        settle()
    except LeaseLost:
        return False
    return True
