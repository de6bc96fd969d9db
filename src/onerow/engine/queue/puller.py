"""Long-running pulls without a worker: extends its own leases, and rescues tasks of dead holders."""

import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self
from uuid import uuid4

from onerow.core.errors import BadInput, StoreUnavailable
from onerow.core.task import Task
from onerow.engine.queue.lease import Leased, Leases, hand_back
from onerow.engine.queue.lease_extender import LeaseExtender
from onerow.engine.queue.lease_watch import LeaseWatch
from onerow.engine.queue.lost_claims import LostClaims
from onerow.engine.queue.scope import Scope
from onerow.pipelines.pipeline import Pipeline
from onerow.ports import LeaseRecord

LONG_DEAD = 20
"""Number of lease lengths after which an ended lease is rescued without having been observed by this program."""


class Puller:
    """Claims tasks of one phase and holds them until they are settled or it is closed.

    Each claim first rescues tasks of dead holders in the phase. Like a worker's rescuer, it observes each lease for its
    whole length before that, so its heartbeat thread runs from the first claim on even if it holds no task.
    """

    def __init__(
        self,
        queue: Scope,
        pipeline: Pipeline | str,
        name: str,
        phase: str,
        lease_for: timedelta,
        worker: str,
    ) -> None:
        self.worker = worker or f"pull-{uuid4().hex[:12]}"
        self._queue = queue
        self._pipeline = pipeline
        self._name = name
        self._phase = phase
        self._lease_for = lease_for
        self._watch = LeaseWatch(
            queue.store,
            lambda pipeline, phase: lease_for,
            lease_for,
            is_ours=self._holds,
            pipeline=name,
            phase=phase,
        )
        self._watch_lock = threading.Lock()
        self._heartbeat = LeaseExtender(queue.store, lease_for, look=self._look, every=self._watch.every)
        self._leases: dict[str, Leased] = {}
        self._lock = threading.Lock()
        self._claiming = threading.Lock()
        # Another puller may use the same given name; its leases must not be handed back.
        self._lost_claims = (
            None if worker else LostClaims(queue.store, self.worker, lease_for.total_seconds(), self._holds)
        )
        self._closed = False

    @property
    def held(self) -> Mapping[str, Leased]:
        """The leases held now, by task id."""
        with self._lock:
            return {task_id: lease for task_id, lease in self._leases.items() if _is_held(lease)}

    def claim(self, limit: int = 1, *, ids: Sequence[str] | None = None) -> list[Leased]:
        """Claim due tasks; see `Queue.claim`."""
        if self._closed:
            raise BadInput("this puller is closed: nothing would keep alive what it claims", field="puller")
        with self._claiming:  # the search for lost claims requires that no claim is in progress
            leases = self._claim(limit, ids)
            with self._lock:  # drops settled leases, because a program may run for years
                kept = {task_id: lease for task_id, lease in self._leases.items() if _is_held(lease)}
                self._leases = kept | {lease.task.task_id: lease for lease in leases}
        self._heartbeat.add(leases)
        return list(leases)

    def _claim(self, limit: int, ids: Sequence[str] | None) -> Leases:
        lost = self._lost_claims
        if lost is not None and lost.due:
            lost.look()
        self._rescue()
        try:
            return self._queue.claim(
                self._pipeline, self._phase, limit=limit, ids=ids, lease_for=self._lease_for, worker=self.worker
            )
        except StoreUnavailable:
            if lost is not None:
                lost.expect()
            raise

    def _rescue(self) -> None:
        self._queue.rescue_ended(self._look(), by=self.worker)
        if self._watch.observed_for < self._lease_for.total_seconds():
            self._queue.rescue(self._name, self._phase, ended_for=LONG_DEAD * self._lease_for, by=self.worker)

    def _look(self) -> list[LeaseRecord]:
        with self._watch_lock:
            return self._watch.look(self._queue.store.now())

    def _holds(self, record: LeaseRecord | Task) -> bool:
        lease = self.held.get(record.task_id)
        return lease is not None and lease.token == record.token

    def close(self) -> None:
        """Stop the heartbeat and hand back the tasks that are not settled."""
        self._closed = True
        self._heartbeat.stop()
        hand_back(self.held.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _is_held(lease: Leased) -> bool:
    return not lease.settled and not lease.lost
