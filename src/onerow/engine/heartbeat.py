"""One thread that keeps leases alive in the hands of code that is no handler."""

import threading
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Protocol

from onerow.core.task import Task
from onerow.ports import Held, Lease, Store

_NOBODY = "-"


class Kept(Protocol):
    """A lease as the heartbeat sees it."""

    task: Task
    settled: bool
    lost: bool

    def hear(self, task: Task) -> Task: ...


class Heartbeat:
    """Extends every lease that was added, a third of its time before the end, until it is settled or lost."""

    def __init__(self, store: Store, lease_for: timedelta, *, told: Callable[[bool], None] | None = None) -> None:
        self._store = store
        self._lease_for = lease_for
        self._told = told  # hears at each beat whether the store answers, also while nothing is held
        self._kept: list[Kept] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, leases: Iterable[Kept]) -> None:
        """From now on these are kept alive."""
        with self._lock:
            self._kept += leases
            if (self._kept or self._told) and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="onerow-pull-heartbeat", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """No more beats; what is still open runs out unless it is settled."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        # A third of the lease, so that two lost heartbeats don't cost us the tasks.
        while not self._stop.wait(self._lease_for.total_seconds() / 3):
            with self._lock:
                self._kept = [lease for lease in self._kept if not lease.settled and not lease.lost]
                kept = list(self._kept)
            if not kept and self._told is None:
                continue
            try:
                self._beat(kept)
                answered = True
            except Exception:  # the store is away, or was closed: the next beat tries again
                answered = False
            if self._told is not None:
                self._told(answered)

    def _beat(self, kept: list[Kept]) -> None:
        if not kept:
            self._store.fetch([_NOBODY])  # only to see whether it answers
            return
        answers = self._store.extend([Lease(each.task.task_id, each.task.token) for each in kept], self._lease_for)
        found = {task.task_id: task for task in self._store.fetch([each.task.task_id for each in kept])}
        for lease, answer in zip(kept, answers, strict=True):
            task = found.get(lease.task.task_id)
            if task is not None and task.token == lease.task.token:
                lease.hear(task)
            elif not isinstance(answer, Held) and not lease.settled:
                lease.lost = True
