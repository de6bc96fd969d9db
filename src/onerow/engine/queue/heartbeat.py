"""Heartbeats: extend leases that are a third over. Used by workers, and by programs that pull without a worker."""

import contextlib
import math
import threading
from collections.abc import Callable, Iterable
from datetime import timedelta
from time import monotonic
from typing import Literal, Protocol, TypeVar

from msgspec.structs import replace

from onerow.core.task import Task
from onerow.ports import Held, Lease, Store


class Holder(Protocol):
    """The holder of one lease; times are monotonic seconds."""

    @property
    def task(self) -> Task: ...

    @property
    def lease_for(self) -> timedelta: ...

    @property
    def beat_at(self) -> float:
        """When the claim or the last confirmed heartbeat was sent."""

    def extended(self, sent_at: float) -> None: ...

    def heard(self, task: Task) -> object: ...

    def ask_to_stop(self, reason: Literal["cancel", "lost"]) -> None: ...


H = TypeVar("H", bound=Holder)


def beat(store: Store, holders: Iterable[H], still_holds: Callable[[H], bool]) -> None:
    """Extend the leases that are a third over, in one call per lease length; tell the holders of cancels and losses."""
    clock = monotonic()
    # A third of the lease, so that two lost heartbeats do not lose the task.
    ageing: dict[timedelta, list[H]] = {}
    for holder in holders:
        if clock - holder.beat_at >= holder.lease_for.total_seconds() / 3:
            ageing.setdefault(holder.lease_for, []).append(holder)
    for lease_for, group in ageing.items():
        sent_at = monotonic()
        known = [holder.task for holder in group]
        answers = store.extend([Lease(task.task_id, task.token) for task in known], lease_for)
        for holder, task, answer in zip(group, known, answers, strict=True):
            if isinstance(answer, Held):
                holder.extended(sent_at)
                # Without another write in between, the content of the new version is known. A signal or a step
                # written in between makes the next write stale, and then the row is read again.
                if answer.version == task.version + 1:
                    holder.heard(replace(task, version=answer.version, leased_until=answer.leased_until))
                if answer.cancel_requested:
                    holder.ask_to_stop("cancel")
            elif still_holds(holder):
                holder.ask_to_stop("lost")


class PulledLease(Holder, Protocol):
    """A lease that is held by code that is not a handler."""

    @property
    def settled(self) -> bool: ...

    @property
    def lost(self) -> bool: ...


class HeartbeatThread:
    """A thread that extends every added lease until it is settled or lost."""

    def __init__(
        self, store: Store, lease_for: timedelta, *, look: Callable[[], object] | None = None, every: float = math.inf
    ) -> None:
        """look: also called at the start and then every `every` seconds or more often, even while no lease is held."""
        self._store = store
        self._look = look
        # The pause follows from the lease: a task claimed during the pause needs its heartbeat in time.
        self._rest = min(every, lease_for.total_seconds() / 6)
        self._leases: list[PulledLease] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, leases: Iterable[PulledLease]) -> None:
        """Start extending these leases."""
        with self._lock:
            self._leases += leases
            if (self._leases or self._look) and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="onerow-pull-heartbeat", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Stop extending; leases that are still open expire unless they are settled."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        self._call_look()
        while not self._stop.wait(self._rest):
            with self._lock:
                self._leases = leases = [lease for lease in self._leases if not lease.settled and not lease.lost]
            with contextlib.suppress(Exception):  # store unavailable or closed: the next round retries
                beat(self._store, leases, lambda lease: not lease.settled)
            self._call_look()

    def _call_look(self) -> None:
        if self._look is not None:
            with contextlib.suppress(Exception):
                self._look()
