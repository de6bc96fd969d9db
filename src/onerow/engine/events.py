"""What happened, as typed values, sent after the commit; one file (log.py) writes the log lines."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from onerow.core.failure import Failure
from onerow.core.status import CANCELLED, COMPLETED, FAILED
from onerow.core.task import Task


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


class LeaseGone(TaskEvent, frozen=True):
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


class StoreAway(Event, frozen=True):
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


class RoleFailed(Event, frozen=True):
    """A background role met an error of ours; it goes on."""

    role: str
    error: str
    trace: str


def told_status(task: Task) -> Iterator[Event]:
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
    """Hands events to those who asked; a hook that raises is told of and harms nothing."""

    def __init__(self) -> None:
        self._hooks: dict[type[Event], list[Callable[[Any], object]]] = {}
        self._wanted: dict[type[Event], bool] = {}
        self.on_hook_error: Callable[[Event, Exception], None] = lambda event, error: None

    def on(self, kind: type[EventType], hook: Hook[EventType]) -> None:
        """Call `hook` after each event of this kind, subclasses included."""
        self._hooks.setdefault(kind, []).append(hook)
        self._wanted.clear()

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
