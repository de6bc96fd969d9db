"""One thread that extends the leases held by code that is not a handler."""

import contextlib
import threading
from collections.abc import Callable, Iterable
from datetime import timedelta
from time import monotonic
from typing import Protocol

from onerow.core.task import Task
from onerow.ports import Held, Lease, Store


class Kept(Protocol):
    """A lease that the extender keeps alive."""

    task: Task
    settled: bool
    lost: bool

    def hear(self, task: Task) -> Task: ...


class LeaseExtender:
    """Extends every added lease at each third of its length, until it is settled or lost."""

    def __init__(
        self, store: Store, lease_for: timedelta, *, look: Callable[[], object] | None = None, every: float = 0.0
    ) -> None:
        """look: also called every `every` seconds, even while no lease is held."""
        self._store = store
        self._lease_for = lease_for
        self._look = look
        self._every = every
        self._kept: list[Kept] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, leases: Iterable[Kept]) -> None:
        """Start extending these leases."""
        with self._lock:
            self._kept += leases
            if (self._kept or self._look) and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="onerow-pull-heartbeat", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Stop extending; leases that are still open expire unless they are settled."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        # A third of the lease, so that two lost heartbeats do not lose the task.
        beat_every = self._lease_for.total_seconds() / 3
        beat_at = monotonic() + beat_every
        while not self._stop.wait(
            beat_every if self._look is None else max(0.0, min(self._every, beat_at - monotonic()))
        ):
            if self._look is None or monotonic() >= beat_at:
                beat_at = monotonic() + beat_every
                with contextlib.suppress(Exception):  # store unavailable or closed: the next heartbeat retries
                    self._beat()
            if self._look is not None:
                with contextlib.suppress(Exception):
                    self._look()

    def _beat(self) -> None:
        with self._lock:
            self._kept = [lease for lease in self._kept if not lease.settled and not lease.lost]
            kept = list(self._kept)
        if not kept:
            return
        answers = self._store.extend([Lease(each.task.task_id, each.task.token) for each in kept], self._lease_for)
        found = {task.task_id: task for task in self._store.fetch([each.task.task_id for each in kept])}
        for lease, answer in zip(kept, answers, strict=True):
            task = found.get(lease.task.task_id)
            if task is not None and task.token == lease.task.token:
                lease.hear(task)
            elif not isinstance(answer, Held) and not lease.settled:
                lease.lost = True
