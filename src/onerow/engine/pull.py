"""Leases in the hands of code that is no handler: settle each, or let it run out."""

import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from onerow.core import rules, values
from onerow.core.durations import Duration, parse_duration
from onerow.core.errors import BadInput, LeaseLost
from onerow.core.failure import ERROR_CLASSES, Failure, classify, failure
from onerow.core.plan import Plan
from onerow.core.status import PROCESSING
from onerow.core.task import Task
from onerow.engine import definitions
from onerow.engine.events import Events
from onerow.engine.masking import Masker
from onerow.engine.settling import told
from onerow.ports import Held, Lease, Move, Stale, Store, Swapped


class Leased:
    """One task in our hands, until it is settled or the lease runs out."""

    def __init__(
        self, store: Store, plan: Plan, task: Task, lease_for: timedelta, events: Events, masker: Masker
    ) -> None:
        self._store = store
        self._plan = plan
        self._lease_for = lease_for
        self._events = events
        self._masker = masker
        self.task = task
        self.settled = False

    @property
    def token(self) -> int:
        """Grows with each claim; lets you fence side effects of your own."""
        return self.task.token

    @property
    def payload(self) -> Any:
        return self.task.payload

    @property
    def cancel_requested(self) -> bool:
        """Whether someone asked to cancel, as of the last heartbeat."""
        return self.task.cancel_requested

    def complete(self, result: Any = None) -> Task:
        """This phase is done; the task goes on to the next, or is completed."""
        text = values.encode(result, "result")
        return self._settle(lambda task, now: rules.advance(task, self._plan, text, now, by=task.leased_by or ""))

    def fail(self, error: BaseException | str, *, error_class: str = "unknown", retry: bool = True) -> Task:
        """It did not work; tried again later while its class and budget allow (`retry=False`: failed at once)."""
        if error_class not in ERROR_CLASSES:
            raise BadInput(
                f"unknown error class {error_class!r}; one of {', '.join(ERROR_CLASSES)}", field="error_class"
            )
        why: Failure = failure(error, error_class) if isinstance(error, str) else classify(error)
        why = replace(why, message=self._masker.text(why.message), trace=self._masker.text(why.trace))
        if not retry:
            why = Failure(why.message, "permanent", why.exception, why.where, why.trace)
        if why.hold_phase:
            until = self._store.now() + (why.after or timedelta(0))
            by = self.task.leased_by or ""
            definitions.set_hold(self._store, self.task.pipeline, self.task.phase, until, why.message, by)
        return self._settle(lambda task, now: rules.fail(task, why, self._plan, now, by=task.leased_by or ""))

    def snooze(self, for_: Duration) -> Task:
        """Not now; costs no retry."""
        span = parse_duration(for_, "for_")
        return self._settle(lambda task, now: rules.snooze(task, span, now, by=task.leased_by or ""))

    def hand_back(self) -> Task:
        """Give it back unfinished, at no cost."""
        return self._settle(lambda task, now: rules.hand_back(task, now, by=task.leased_by or ""))

    def extend(self, lease_for: Duration | None = None) -> Task:
        """Heartbeat; raises LeaseLost when it is no longer ours."""
        span = self._lease_for if lease_for is None else parse_duration(lease_for, "lease_for")
        answer = self._store.extend([Lease(self.task.task_id, self.task.token)], span)[0]
        if not isinstance(answer, Held):
            raise self._lost()
        found = self._store.fetch([self.task.task_id])
        if not found or found[0].token != self.task.token:
            raise self._lost()
        self.task = found[0]
        return self.task

    def _settle(self, rule: Callable[[Task, datetime], Task]) -> Task:
        if self.settled:
            raise LeaseLost(f"task {self.task.task_id} was settled already")
        before = self.task
        while True:
            after = rule(before, self._store.now())
            answer = self._store.swap([Move(before, after)])[0]
            if isinstance(answer, Swapped):
                self.task, self.settled = answer.task, True
                for event in told(before, answer.task, None):
                    self._events.send(event)
                return answer.task
            assert isinstance(answer, Stale)
            found = self._store.fetch([before.task_id])
            if not found or found[0].token != before.token:
                raise self._lost()
            if found[0].status is not PROCESSING:
                # Our own write had landed and only its answer was lost.
                self.task, self.settled = found[0], True
                return found[0]
            before = found[0]

    def _lost(self) -> LeaseLost:
        return LeaseLost(
            f"the lease on task {self.task.task_id} ran out or was taken; nothing was written. "
            f"Ask for a longer lease_for, or extend() in time"
        )


class Leases:
    """The tasks that one claim gave; a sequence, and a context manager that keeps them alive."""

    def __init__(
        self, store: Store, plan: Plan, tasks: list[Task], lease_for: timedelta, events: Events, masker: Masker
    ) -> None:
        self._store = store
        self._lease_for = lease_for
        self._items = [Leased(store, plan, task, lease_for, events, masker) for task in tasks]
        self._stop = threading.Event()
        self._beater: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Leased]:
        return iter(self._items)

    def __getitem__(self, index: int) -> Leased:
        return self._items[index]

    def __enter__(self) -> Self:
        if self._items:
            self._beater = threading.Thread(target=self._beat, name="onerow-pull-heartbeat", daemon=True)
            self._beater.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._beater is not None:
            self._beater.join()
        for lease in self._items:
            if not lease.settled:
                try:
                    lease.hand_back()
                except LeaseLost:
                    continue

    def _beat(self) -> None:
        # A third of the lease, so that two lost heartbeats don't cost us the tasks.
        while not self._stop.wait(self._lease_for.total_seconds() / 3):
            open_leases = [lease for lease in self._items if not lease.settled]
            if not open_leases:
                continue
            try:
                self._store.extend([Lease(o.task.task_id, o.task.token) for o in open_leases], self._lease_for)
                found = {task.task_id: task for task in self._store.fetch([o.task.task_id for o in open_leases])}
            except Exception:
                time.sleep(0.05)  # the store is away: the next beat tries again
                continue
            for lease in open_leases:
                task = found.get(lease.task.task_id)
                if task is not None and task.token == lease.task.token and not lease.settled:
                    lease.task = task
