"""What happened, as typed values, sent after the commit; one file (log.py) writes the log lines."""

import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from time import monotonic
from typing import Any, TypeVar

import msgspec

from onerow.core.failure import Failure
from onerow.core.status import CANCELLED, COMPLETED, FAILED
from onerow.core.task import Task
from onerow.engine.events.hooks import Guard, GuardState, HookThread


class Event(msgspec.Struct, frozen=True):
    """The root of all events."""


class TaskEvent(Event, frozen=True):
    """Something happened to a task; the task as it stands after it."""

    task: Task


class TaskAdded(TaskEvent, frozen=True):
    """A new row is in the store."""


class TaskAdvanced(TaskEvent, frozen=True):
    """A phase is done, and the next one waits."""

    phase: str = ""


class TaskCompleted(TaskEvent, frozen=True):
    """The last phase is done."""


class TaskRetried(TaskEvent, frozen=True):
    """An attempt failed, and the task waits to be tried again."""

    failure: Failure | None = None


class TaskFailed(TaskEvent, frozen=True):
    """It will not run again unless someone says so."""

    failure: Failure | None = None


class TaskCancelled(TaskEvent, frozen=True):
    """It ended because someone asked."""


class TaskRescued(TaskEvent, frozen=True):
    """Its worker was gone; it waits again, or failed."""

    worker: str = ""


class TaskActed(TaskEvent, frozen=True):
    """Someone acted on it by hand: fail, retry, replay, finish, reschedule, priority, signal."""

    act: str = ""
    by: str = ""


class TaskLeaseLost(TaskEvent, frozen=True):
    """We lost the lease while working; the work was stopped and nothing written."""


class WorkerStarted(Event, frozen=True):
    worker: str
    store: str
    pipelines: tuple[str, ...]


class WorkerStopped(Event, frozen=True):
    worker: str
    reason: str


class WorkerOutdated(Event, frozen=True):
    """The store was migrated past this code; the worker drains."""

    worker: str
    error: str


class WorkerHung(TaskEvent, frozen=True):
    """Work that would not stop: the worker process must go."""

    reason: str = ""


class PhaseTooHeavy(Event, frozen=True):
    """A phase takes more than this host has, so that it is never claimed here."""

    pipeline: str
    phase: str


class DefinitionReplaced(Event, frozen=True):
    """A newer definition than this worker's code is published; tasks follow it."""

    pipeline: str
    unknown: tuple[str, ...]  # its phases that this worker's code does not have


class StoreUnreachable(Event, frozen=True):
    """The store can't be reached; we go on trying."""

    error: str
    since: datetime | None = None


class StoreGone(Event, frozen=True):
    """The database file was deleted, moved or replaced; the worker stops."""

    worker: str
    error: str


class StoreBack(Event, frozen=True):
    """The store answers again."""


class AlertLost(Event, frozen=True):
    """Nobody took some alerts; they are given up."""

    count: int
    error: str


class HookOverdue(Event, frozen=True):
    """A hook, or a receiver of alerts, runs longer than its limit; it gets no further events until it returns."""

    hook: str
    limit: float  # seconds


class HookEventsDropped(Event, frozen=True):
    """Events that a hook, or a receiver of alerts, was not called for: it was overdue, or slower than they came."""

    hook: str
    count: int


class RoleFailed(Event, frozen=True):
    """A background role met an error of ours; it goes on."""

    role: str
    error: str
    trace: str


def events_of_status(task: Task) -> Iterator[Event]:
    """The event of a task that has just ended, if it has."""
    if task.status is COMPLETED:
        yield TaskCompleted(task)
    elif task.status is FAILED:
        yield TaskFailed(task)
    elif task.status is CANCELLED:
        yield TaskCancelled(task)


EventType = TypeVar("EventType", bound=Event)
Hook = Callable[[EventType], object]


class Events:
    """Delivers events to hooks. A hook that raises is reported and harms nothing.

    Hooks of users are called in the thread that sends the event; while a worker runs in this process (`defer`), each
    is called from a thread of its own, so that no hook can delay the worker.
    """

    def __init__(self) -> None:
        self._hooks: dict[type[Event], list[Callable[[Any], object]]] = {}
        self._wanted: dict[type[Event], bool] = {}
        self._threads: list[HookThread] = []
        self._workers = 0
        self._counting = threading.Lock()
        self.on_hook_error: Callable[[Event, BaseException], None] = lambda event, error: None

    def on(self, kind: type[EventType], hook: Hook[EventType]) -> None:
        """Call `hook` in the sending thread after each event of this kind, subclasses included."""
        self._hooks.setdefault(kind, []).append(hook)
        self._wanted.clear()

    def on_for_user(self, kind: type[EventType], hook: Hook[EventType], name: str, limit: float, key: object) -> None:
        """The same for a hook that a user wrote: with a time limit in seconds, and off the threads of workers.

        Hooks with an equal key share a thread: one function hears of several kinds of events in their order.
        """
        thread = next((thread for thread in self._threads if thread.key == key), None)
        if thread is None:
            thread = HookThread(hook, name, limit, key, lambda event, error: self.on_hook_error(event, error))
            self._threads.append(thread)
        self.on(kind, lambda event: thread.put(event) if self._workers else thread.call(event))

    def off(self, kind: type[EventType], hook: Hook[EventType]) -> None:
        """Undo `on`."""
        self._hooks[kind].remove(hook)
        if not self._hooks[kind]:
            del self._hooks[kind]
        self._wanted.clear()

    def wanted(self, kind: type[Event]) -> bool:
        """Whether anybody listens, so that busy code may skip making the event."""
        if kind not in self._wanted:
            self._wanted[kind] = any(parent in self._hooks for parent in kind.__mro__)
        return self._wanted[kind]

    def send(self, event: Event) -> None:
        for kind in type(event).__mro__:
            for hook in self._hooks.get(kind, ()):
                try:
                    hook(event)
                except Exception as error:
                    self.on_hook_error(event, error)

    def defer(self) -> None:
        """A worker starts in this process: hooks of users are called from threads of their own."""
        with self._counting:
            self._workers += 1

    def undefer(self, within: float) -> None:
        """The worker has ended: hooks get so many seconds for the events that they have not seen."""
        deadline = monotonic() + within
        for thread in self._threads:
            thread.finish(deadline)
        self.report_hooks()
        with self._counting:
            self._workers -= 1

    def report_hooks(self, others: Iterable[Guard] = ()) -> list[GuardState]:
        """Send an event for each hook that is newly overdue or lost events; the state of those that are not well."""
        clock = monotonic()
        checked = [(thread.guard, thread.check(clock)) for thread in self._threads]
        checked += [(guard, guard.check(clock)) for guard in others]
        for guard, overdue in checked:
            if overdue:
                self.send(HookOverdue(guard.name, guard.limit))
            if count := guard.newly_dropped(clock):
                self.send(HookEventsDropped(guard.name, count))
        return [state for guard, _ in checked if (state := guard.state(clock)) is not None]
