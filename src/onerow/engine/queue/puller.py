"""Long-running pulls without a worker: extends its own leases, and rescues tasks of dead holders."""

import os
import socket
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from time import monotonic
from types import TracebackType
from typing import Self
from uuid import uuid4

from onerow.core.durations import Duration, parse_duration
from onerow.core.errors import BadInput, StoreError, StoreUnavailable
from onerow.core.task import Task
from onerow.engine.control import notes
from onerow.engine.control.definitions import PULLER, WORKER
from onerow.engine.queue.claim import pull
from onerow.engine.queue.heartbeat import HeartbeatThread
from onerow.engine.queue.lease import Leased, Leases, hand_back
from onerow.engine.queue.lease_watch import LeaseWatch
from onerow.engine.queue.lost_claims import LostClaims
from onerow.engine.queue.puller_async import PullerAsync
from onerow.engine.queue.scope import Scope, phase_of, rescue_observed
from onerow.pipelines.pipeline import Pipeline
from onerow.ports import LeaseRecord, Note

LONG_DEAD = 20
"""Number of lease lengths after which an ended lease is rescued without having been observed by this program."""

_REGISTER_EVERY = 5.0  # seconds
_FORGOTTEN_AFTER = timedelta(hours=1)


class Puller(PullerAsync):
    """Claims tasks of one phase and holds them until they are settled or it is closed.

    Each claim first rescues tasks of dead holders in the phase. Like a worker's rescuer, it observes each lease for its
    whole length before that, so its heartbeat thread runs from the first claim on even if it holds no task. The thread
    also keeps its entry in the registry of workers.
    """

    def __init__(
        self,
        scope: Scope,
        pipeline: Pipeline | str,
        phase: str | None,
        lease_for: Duration | None,
        worker: str,
    ) -> None:
        plan, wanted = phase_of(scope, pipeline, phase)
        span = wanted.lease if lease_for is None else parse_duration(lease_for, "lease_for")
        self.worker: str = worker or f"pull-{uuid4().hex[:12]}"
        self._scope = scope
        self._pipeline = pipeline
        self._name, self._phase = plan.name, wanted.name
        self._lease_for = span
        self._watch = LeaseWatch(
            scope.store,
            lambda pipeline, phase: span,
            span,
            is_ours=self._holds,
            pipeline=plan.name,
            phase=wanted.name,
        )
        self._watch_lock = threading.Lock()
        self._heartbeat = HeartbeatThread(
            scope.store, span, look=self._look_and_register, every=min(self._watch.every, _REGISTER_EVERY)
        )
        self._leases: dict[str, Leased] = {}
        self._lock = threading.Lock()
        self._claiming = threading.Lock()
        # Another puller may use the same given name; its leases must not be handed back.
        self._lost_claims = None if worker else LostClaims(scope.store, self.worker, span.total_seconds(), self._holds)
        self._closed = False
        self._started_at = datetime.now(UTC)
        self._register_at = 0.0
        self._entry_version = 0

    @property
    def held(self) -> Mapping[str, Leased]:
        """The leases held now, by task id."""
        with self._lock:
            return {task_id: lease for task_id, lease in self._leases.items() if _is_held(lease)}

    def claim(self, limit: int = 1, *, ids: Sequence[str] | None = None) -> list[Leased]:
        """Claim due tasks. ids: only these tasks."""
        if self._closed:
            raise BadInput("this puller is closed", fix="create another one", field="puller")
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
            return pull(
                self._scope,
                self._pipeline,
                self._phase,
                limit=limit,
                ids=ids,
                lease_for=self._lease_for,
                worker=self.worker,
            )
        except StoreUnavailable:
            if lost is not None:
                lost.expect()
            raise

    def _rescue(self) -> None:
        rescue_observed(self._scope, self._look(), self._scope.store.now(), by=self.worker)
        if self._watch.observed_for < self._lease_for.total_seconds():
            long_dead = LONG_DEAD * self._lease_for
            self._scope.rescue(self._name, self._phase, ended_for=long_dead, by=self.worker)

    def _look(self) -> list[LeaseRecord]:
        with self._watch_lock:
            return self._watch.look(self._scope.store.now())

    def _look_and_register(self) -> None:
        if monotonic() >= self._register_at:
            self._register_at = monotonic() + _REGISTER_EVERY
            self._register()
        self._look()

    def _register(self) -> None:
        """Write the entry in the registry of workers; the first time, remove entries of pullers that ended long ago."""
        store = self._scope.store
        if not self._entry_version:
            oldest = store.now() - _FORGOTTEN_AFTER
            silent = [note for note in store.notes(WORKER) if note.updated_at is not None and note.updated_at < oldest]
            store.drop_notes(WORKER, [note.name for note in silent if note.body.get("kind") == PULLER])
        # Without boot id and start time, by which others could prove its death: pullers may share a name.
        body: dict[str, object] = {
            "kind": PULLER,
            "worker": self.worker,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started_at": self._started_at.isoformat(),
            "phases": [[self._name, self._phase]],
        }
        self._entry_version = notes.put(store, Note(WORKER, self.worker, body, self._entry_version)).version

    def _holds(self, record: LeaseRecord | Task) -> bool:
        lease = self.held.get(record.task_id)
        return lease is not None and lease.token == record.token

    def close(self) -> None:
        """Stop the heartbeat and hand back the tasks that are not settled."""
        self._closed = True
        self._heartbeat.stop()
        if self._entry_version:
            with suppress(StoreError):
                self._scope.store.drop_notes(WORKER, [self.worker])
        hand_back(self.held.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _is_held(lease: Leased) -> bool:
    return not lease.settled and not lease.lost
