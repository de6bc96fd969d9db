"""Typed events, sent after the commit; log.py writes the log lines."""

import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from time import monotonic
from typing import Any, TypeVar

import msgspec

from onerow.core.failure import Failure
from onerow.core.history import cancel_reason
from onerow.core.status import CANCELLED, COMPLETED, FAILED
from onerow.core.task import Task
from onerow.engine.events.hooks import Guard, GuardState, HookThread


class Event(msgspec.Struct, frozen=True):
    """Base class of all events."""


class TaskEvent(Event, frozen=True):
    """A task changed; `task` is its new state."""

    task: Task  # its new state


class TaskAdded(TaskEvent, frozen=True):
    """A task was added."""


class TaskAdvanced(TaskEvent, frozen=True):
    """A phase is done, and the task waits for the next one."""

    phase: str = ""  # the phase that is done


class TaskCompleted(TaskEvent, frozen=True):
    """The last phase is done."""


class TaskRetried(TaskEvent, frozen=True):
    """An attempt failed, and the task waits for a retry."""

    failure: Failure | None = None  # the error and its class


class TaskFailed(TaskEvent, frozen=True):
    """A task failed permanently; it runs again only if it is retried manually."""

    failure: Failure | None = None  # the error and its class; None if someone failed it manually


class TaskCancelled(TaskEvent, frozen=True):
    """A task was cancelled, by an operation or by its own handler."""

    reason: str = ""  # given by the handler or the person who asked


class TaskRescued(TaskEvent, frozen=True):
    """A task was taken from a dead worker; it waits again, or has failed."""

    worker: str = ""  # the worker that held it


class OperationApplied(TaskEvent, frozen=True):
    """A manual operation was applied: cancel, fail, retry, replay, finish, reschedule, set_priority, signal, annotate."""

    operation: str = ""
    by: str = ""


class TaskLeaseLost(TaskEvent, frozen=True):
    """An attempt lost its lease; it was stopped and its result was discarded."""


class WorkerStarted(Event, frozen=True):
    worker: str
    store: str
    pipelines: tuple[str, ...]


class WorkerStopped(Event, frozen=True):
    worker: str
    reason: str


class WorkerOutdated(Event, frozen=True):
    """The store's schema is newer than this code; the worker drains."""

    worker: str
    error: str


class LoopBlocked(TaskEvent, frozen=True):
    """An `async def` handler blocked the event loop; no other one could run during these seconds."""

    seconds: float = 0.0


class WorkerHung(TaskEvent, frozen=True):
    """An attempt did not stop; the worker process must exit."""

    reason: str = ""
    because: str = ""


class WorkerUnusable(Event, frozen=True):
    """The worker process can run no more attempts: it lacks resources, or its event loop is broken. It must exit."""

    worker: str
    reason: str


class ScheduleFailed(Event, frozen=True):
    """A schedule could not add its task; it is tried again."""

    pipeline: str
    schedule: str
    error: str


class ResourceFailed(Event, frozen=True):
    """A resource could not be made in an isolated process, or not be closed; the task waits and runs again."""

    error: str


class DefinitionReplaced(Event, frozen=True):
    """A newer definition than this worker's code is published; tasks follow it."""

    pipeline: str
    unknown: tuple[str, ...]  # its phases that this worker's code does not have


class TasksStranded(Event, frozen=True):
    """The definition that a worker has published lacks a phase at which tasks wait."""

    pipeline: str
    phase: str
    count: int


class StoreUnreachable(Event, frozen=True):
    """The store is unavailable; the worker retries."""

    error: str
    since: datetime | None = None


class StoreGone(Event, frozen=True):
    """The database file was deleted, moved or replaced; the worker stops."""

    worker: str
    error: str


class StoreBack(Event, frozen=True):
    """The store answers again."""


class AlertLost(Event, frozen=True):
    """Alerts could not be delivered and are dropped."""

    count: int
    error: str


class WebhookFailed(Event, frozen=True):
    """A receiver of events did not take one; it is sent again after `retry_after` seconds (0: it is skipped)."""

    webhook: str
    error: str
    retry_after: float


class MessageHandled(Event, frozen=True):
    """A message was acknowledged, or given back to its inbox because of the states of the tasks that it asks for."""

    inbox: str  # its name
    message_id: str  # as the inbox gave it
    tasks: tuple[Task, ...]  # as they were then; none if it asked for no work
    acknowledged: bool = True  # False: it is delivered again later, or was set aside
    held: bool = False  # whether it was held until its tasks had ended


class MessageRejected(Event, frozen=True):
    """A message of an inbox was set aside."""

    inbox: str
    message_id: str
    reason: str


class SignaturesRefused(Event, frozen=True):
    """Requests to a webhook had a missing, wrong or old signature; at most one event every few seconds."""

    inbox: str
    count: int


class InboxUnreachable(Event, frozen=True):
    """An inbox is unavailable; the receiver retries."""

    inbox: str
    error: str


class InboxBack(Event, frozen=True):
    """An inbox answers again."""

    inbox: str


class HookOverdue(Event, frozen=True):
    """A hook or alert receiver exceeds its time limit; it gets no further events until it returns."""

    hook: str
    limit: float  # seconds


class HookEventsDropped(Event, frozen=True):
    """Events were dropped for a hook or alert receiver that was overdue or too slow."""

    hook: str
    count: int


class RoleFailed(Event, frozen=True):
    """A background role raised an unexpected error; it continues."""

    role: str
    error: str
    trace: str


def events_of(task: Task, before: Task | None = None, why: Failure | None = None) -> Iterator[Event]:
    """Yield the event of a written move. before: the task that its lease holder moved. why: the failure of its attempt."""
    if task.status is COMPLETED:
        yield TaskCompleted(task)
    elif task.status is FAILED:
        yield TaskFailed(task, why)
    elif task.status is CANCELLED:
        yield TaskCancelled(task, cancel_reason(task.logs_json))
    elif before is not None and task.phase != before.phase:
        yield TaskAdvanced(task, before.phase)
    elif why is not None:
        yield TaskRetried(task, why)


EventType = TypeVar("EventType", bound=Event)
Hook = Callable[[EventType], object]


class Events:
    """Delivers events to hooks. A hook that raises is reported and has no other effect.

    Hooks of users are called in the sending thread; while a worker runs in this process (`defer`), each is called in a
    separate thread, so that no hook can delay the worker.
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
        """Like `on`, for a user's hook: with a time limit in seconds, and not in the threads of workers.

        Hooks with an equal key share a thread, so that one function receives events of several kinds in order.
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
        """Whether a hook listens to this kind, so that hot code may skip building the event."""
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
        """Call users' hooks in separate threads from now on, because a worker starts in this process."""
        with self._counting:
            self._workers += 1

    def undefer(self, within: float) -> None:
        """Undo `defer` after a worker ended; hooks get `within` seconds for their pending events."""
        deadline = monotonic() + within
        for thread in self._threads:
            thread.finish(deadline)
        self.report_hooks()
        with self._counting:
            self._workers -= 1

    def report_hooks(self, others: Iterable[Guard] = ()) -> list[GuardState]:
        """Send an event for each hook that is newly overdue or lost events; return the states of such hooks."""
        clock = monotonic()
        checked = [(thread.guard, thread.check(clock)) for thread in self._threads]
        checked += [(guard, guard.check(clock)) for guard in others]
        for guard, overdue in checked:
            if overdue:
                self.send(HookOverdue(guard.name, guard.limit))
            if count := guard.newly_dropped(clock):
                self.send(HookEventsDropped(guard.name, count))
        return [state for guard, _ in checked if (state := guard.state(clock)) is not None]
