"""Rescues and registers for programs that pull over HTTP, which have no puller of their own."""

import os
import socket
import threading
from datetime import UTC, datetime, timedelta
from time import monotonic

from onerow.engine.control import notes
from onerow.engine.control.definitions import PULLER, WORKER
from onerow.engine.queue.lease_watch import LeaseWatch
from onerow.engine.queue.puller import LONG_DEAD
from onerow.engine.queue.queue import Queue
from onerow.engine.queue.scope import plan_of, rescue_observed
from onerow.ports import Note

_REGISTER_EVERY = 5.0
_FORGOTTEN_AFTER = timedelta(hours=1)
_MOST_NAMES = 1_000


class PullWatch:
    """Observes the leases of the phases that are pulled here, and keeps the pullers in the registry of workers."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._watches: dict[tuple[str, str], tuple[LeaseWatch, float]] = {}
        self._registered: dict[tuple[str, str, str], float] = {}
        self._lock = threading.Lock()

    def before_claim(self, pipeline: str, phase: str, worker: str) -> None:
        """Rescue tasks of the phase whose holders are dead, as every puller does; note that this one is alive."""
        with self._lock:
            watch, looked_at = self._watch(pipeline, phase)
            if monotonic() - looked_at >= watch.every:
                self._look(watch, pipeline, phase)
                self._watches[pipeline, phase] = (watch, monotonic())
            self._register(pipeline, phase, worker)

    def _watch(self, pipeline: str, phase: str) -> tuple[LeaseWatch, float]:
        if (pipeline, phase) not in self._watches:
            queue = self._queue
            span = plan_of(queue, pipeline).phase(phase).lease
            watch = LeaseWatch(
                queue.store, lambda pipeline, phase: span, span, is_ours=lambda record: False,
                pipeline=pipeline, phase=phase,
            )  # fmt: skip
            self._watches[pipeline, phase] = (watch, -watch.every)
        return self._watches[pipeline, phase]

    def _look(self, watch: LeaseWatch, pipeline: str, phase: str) -> None:
        queue, now = self._queue, self._queue.store.now()
        ended = watch.look(now)
        if ended:
            rescue_observed(queue, ended, now, by="http")
        span = plan_of(queue, pipeline).phase(phase).lease
        if watch.observed_for < span.total_seconds():
            queue.rescue(pipeline, phase, ended_for=LONG_DEAD * span, by="http")

    def _register(self, pipeline: str, phase: str, worker: str) -> None:
        key = (pipeline, phase, worker)
        if monotonic() - self._registered.get(key, -_REGISTER_EVERY) < _REGISTER_EVERY:
            return
        store = self._queue.store
        if len(self._registered) >= _MOST_NAMES:
            self._registered.clear()
        if not self._registered:
            oldest = store.now() - _FORGOTTEN_AFTER
            silent = [note for note in store.notes(WORKER) if note.updated_at is not None and note.updated_at < oldest]
            store.drop_notes(WORKER, [note.name for note in silent if note.body.get("kind") == PULLER])
        body: dict[str, object] = {
            "kind": PULLER,
            "worker": worker,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started_at": datetime.now(UTC).isoformat(),
            "phases": sorted(
                [[each[0], each[1]] for each in self._registered if each[2] == worker] + [[pipeline, phase]]
            ),
        }
        known = notes.find(store, WORKER, worker)
        if known is None or known.body.get("kind") == PULLER:  # a worker's own entry is not replaced
            notes.put(store, Note(WORKER, worker, body, known.version if known else 0))
        self._registered[key] = monotonic()
