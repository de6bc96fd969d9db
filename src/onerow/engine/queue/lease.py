"""Leases held by code that is not a handler: each is settled or expires."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from onerow.core import rules, steps, values
from onerow.core.durations import Duration, parse_duration
from onerow.core.errors import BadInput, LeaseLost
from onerow.core.failure import ERROR_CLASSES, Classes, Failure, classify, failure, storable
from onerow.core.plan import Plan
from onerow.core.retention import Retention
from onerow.core.rules import checkpoints
from onerow.core.status import COMPLETED, PROCESSING
from onerow.core.suggest import did_you_mean
from onerow.core.task import Task
from onerow.engine.control import definitions
from onerow.engine.events.events import Events, events_of
from onerow.engine.output.masking import Masker
from onerow.engine.queue.compare_and_swap import lease_lost, update_held
from onerow.engine.queue.heartbeat import HeartbeatThread
from onerow.engine.queue.lease_async import LeasedAsync, LeasesAsync
from onerow.ports import Held, Lease, Store


class Leased(LeasedAsync):
    """One leased task, until it is settled or the lease expires."""

    def __init__(
        self,
        store: Store,
        follow: Callable[[], Plan],
        task: Task,
        lease_for: timedelta,
        claimed_at: float,
        events: Events,
        masker: Masker,
        errors: Sequence[Classes] = (),
        retention: Retention | None = None,
    ) -> None:
        self._errors = errors
        self._retention = retention or Retention()
        self._store = store
        self._follow = follow
        self.lease_for = lease_for
        self.beat_at: float = claimed_at
        self._events = events
        self._masker = masker
        self._task_lock = threading.Lock()
        self._cancel_requested = False
        self.task: Task = task  # as it was claimed, or last written by this lease
        self.settled: bool = False  # whether its outcome was written
        self.lost: bool = False  # whether the last heartbeat found that the lease was lost

    @property
    def token(self) -> int:
        """Fencing token: grows with each claim; store it with your side effects and refuse smaller ones."""
        return self.task.token

    @property
    def payload(self) -> Any:
        """The payload of the task."""
        return self.task.payload

    @property
    def cancel_requested(self) -> bool:
        """Whether cancellation was requested, as of the last heartbeat."""
        return self._cancel_requested or self.task.cancel_requested

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of this phase; different after a replay."""
        return f"{self.task.task_id}:{self.task.phase}:{self.task.generation}"

    def remember(self, name: str, value: Any) -> Task:
        """Store a JSON value for later attempts of this phase; it is durable when this returns.

        Written before a side effect (the intent) and after it (the result), it shows the next attempt how far a crashed
        one got. The same name again replaces the value. name: identifies the value. value: any JSON value.
        """
        text = values.encode(value, f"step {steps.check_name(name)!r}")
        after = self._write(lambda task, now: checkpoints.remember(task, name, text, now))
        if after.status is not PROCESSING:
            raise lease_lost(self.task)
        return after

    def recall(self, name: str) -> Any:
        """Return the value that this or an earlier attempt remembered, else None. name: as given to `remember`."""
        record = steps.records(self.task).get(name)
        return None if record is None else record.value

    def progress(self, done: float, total: float | None = None, note: str = "") -> Task:
        """Store the progress of this attempt, for people who watch the task. note: a text that is shown with it."""
        text = values.encode({"done": done, "total": total, "note": self._masker.text(note)}, "progress")
        return self._write(lambda task, now: rules.report(task, now, progress=text))

    def complete(self, result: Any = None) -> Task:
        """Finish this phase: the task advances to the next one or is completed."""
        text = values.encode(result, "result")
        return self._settle(lambda task, now: rules.complete(task, self._follow(), text, now, by=task.leased_by or ""))

    def fail(self, error: BaseException | str, *, error_class: str = "unknown", retry: bool = True) -> Task:
        """Fail the attempt: it is retried later if its error class and retry budget allow. retry: False fails at once."""
        if error_class not in ERROR_CLASSES:
            raise BadInput(
                f"unknown error class {error_class!r}",
                fix=did_you_mean(error_class, ERROR_CLASSES),
                field="error_class",
            )
        why: Failure = failure(error, error_class) if isinstance(error, str) else classify(error, self._errors)
        why = replace(why, message=self._masker.text(why.message), trace=self._masker.text(why.trace))
        if not retry:
            why = Failure(why.message, "permanent", why.exception, why.where, why.trace)
        if why.hold_phase:
            until = self._store.now() + (why.after or timedelta(0))
            by = self.task.leased_by or ""
            definitions.set_hold(self._store, self.task.pipeline, self.task.phase, until, why.message, by)
        return self._settle(lambda task, now: rules.fail(task, why, self._follow(), now, by=task.leased_by or ""))

    def snooze(self, for_: Duration) -> Task:
        """Put the task off for a while, without using up a retry."""
        span = parse_duration(for_, "for_")
        return self._settle(lambda task, now: rules.snooze(task, span, now, by=task.leased_by or ""))

    def cancel(self, reason: str = "") -> Task:
        """End the task as cancelled; the reason goes to its history. Workers cancel its children."""
        why = self._masker.text(storable(reason))
        return self._settle(lambda task, now: rules.cancel_itself(task, why, now, by=task.leased_by or ""))

    def skip(self, reason: str = "") -> Task:
        """Leave this phase without a result: the task goes on with the next phase, or is completed after the last."""
        why = self._masker.text(storable(reason))
        return self._settle(lambda task, now: rules.skip(task, self._follow(), why, now, by=task.leased_by or ""))

    def hand_back(self) -> Task:
        """Give the task back unfinished, without using up a retry."""
        return self._settle(lambda task, now: rules.hand_back(task, now, by=task.leased_by or ""))

    def extend(self, lease_for: Duration | None = None) -> Task:
        """Extend the lease; raise LeaseLost if it was lost. lease_for: from now on; by default as claimed."""
        span = self.lease_for if lease_for is None else parse_duration(lease_for, "lease_for")
        answer = self._store.extend([Lease(self.task.task_id, self.task.token)], span)[0]
        if not isinstance(answer, Held):
            raise lease_lost(self.task)
        found = self._store.fetch([self.task.task_id])
        if not found or found[0].token != self.task.token:
            raise lease_lost(self.task)
        return self.heard(found[0])

    def _settle(self, rule: Callable[[Task, datetime], Task]) -> Task:
        before = self.task
        after = self._write(rule)
        self.settled = True
        for event in events_of(after, before):
            self._events.send(event)
        return after

    def heard(self, task: Task) -> Task:
        """Take over a row read elsewhere unless ours is newer: the heartbeat thread reads while this one writes."""
        with self._task_lock:
            if task.version > self.task.version:
                self.task = task
            return self.task

    def extended(self, sent_at: float) -> None:
        """Record a confirmed heartbeat."""
        self.beat_at = sent_at

    def ask_to_stop(self, reason: str) -> None:
        """Record what a heartbeat found: a cancel request, or that the lease was lost."""
        if reason == "lost":
            self.lost = True
        else:
            self._cancel_requested = True

    def _write(self, rule: Callable[[Task, datetime], Task]) -> Task:
        """Apply a rule, write the result and return it; raise LeaseLost if the lease was lost."""
        if self.settled:
            raise LeaseLost(f"task {self.task.task_id} was settled already")
        return self.heard(update_held(self._store, self.task, rule, self._deletes_at_end))

    def _deletes_at_end(self, task: Task) -> bool:
        return task.status is COMPLETED and self._retention.deletes_at_end(task, self._follow())


class Leases(LeasesAsync):
    """The tasks of one claim: a sequence, and a context manager that extends their leases."""

    def __init__(
        self,
        store: Store,
        follow: Callable[[], Plan],
        tasks: list[Task],
        lease_for: timedelta,
        claimed_at: float,
        events: Events,
        masker: Masker,
        errors: Sequence[Classes] = (),
        retention: Retention | None = None,
    ) -> None:
        self._items = [
            Leased(store, follow, task, lease_for, claimed_at, events, masker, errors, retention) for task in tasks
        ]
        self._heartbeat = HeartbeatThread(store, lease_for)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Leased]:
        return iter(self._items)

    def __getitem__(self, index: int) -> Leased:
        return self._items[index]

    def __enter__(self) -> Self:
        self._heartbeat.add(self._items)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._heartbeat.stop()
        hand_back(self._items)


def hand_back(leases: Iterable[Leased]) -> None:
    """Give back the leases that are not settled."""
    for lease in leases:
        if not lease.settled:
            try:
                lease.hand_back()
            except LeaseLost:
                continue
