"""Writes log lines for events to the logger 'onerow'; it installs no handler and changes no level.

Payloads are never logged, secrets are masked, and control characters are replaced. Each record has the fields of its
event as attributes: event, worker, task_id, pipeline, phase, attempt, error_class and so on.
"""

import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from onerow.core.durations import spell_duration
from onerow.core.failure import trace_of
from onerow.core.task import Task
from onerow.engine.events import events as e
from onerow.engine.output.masking import Masker
from onerow.engine.output.terminal import neutral, neutral_lines

log = logging.getLogger("onerow")

_LOGGED: tuple[type[e.Event], ...] = (
    e.WorkerStarted, e.WorkerStopped, e.TaskRetried, e.TaskFailed, e.TaskCancelled, e.TaskRescued, e.TaskLeaseLost,
    e.LoopBlocked, e.WorkerHung, e.WorkerUnusable, e.WorkerOutdated, e.ResourceFailed, e.DefinitionReplaced, e.TasksStranded,
    e.ScheduleFailed, e.StoreUnreachable, e.StoreGone,
    e.StoreBack, e.RoleFailed, e.AlertLost, e.WebhookFailed, e.HookOverdue, e.HookEventsDropped,
    e.MessageRejected, e.SignaturesRefused, e.InboxUnreachable, e.InboxBack,
)  # fmt: skip
_PER_TASK: tuple[type[e.Event], ...] = (e.TaskAdvanced, e.TaskCompleted, e.MessageHandled)  # only at level DEBUG
_NO_FIELDS = frozenset({"task", "tasks", "failure", "trace"})


def describe(event: e.Event) -> tuple[int, str] | None:
    """Return the level and the text of an event's log line; None for events that are not logged."""
    match event:
        case e.WorkerStarted(worker=worker, store=store, pipelines=names):
            return logging.INFO, f"worker {worker} serves {', '.join(names)} in {store}"
        case e.WorkerStopped(worker=worker, reason=reason):
            return logging.INFO, f"worker {worker} stopped: {reason}"
        case e.TaskAdvanced(task=task, phase=phase):
            return logging.DEBUG, f"{_name(task)} advanced: {phase} → {task.phase}"
        case e.TaskCompleted(task=task):
            return logging.DEBUG, f"{_name(task)} completed"
        case e.TaskRetried(task=task):
            return (
                logging.WARNING,
                f"{_name(task)} failed in {task.phase} and runs again in {_wait(task)}: {task.error}",
            )
        case e.TaskFailed(task=task):
            return logging.ERROR, f"{_name(task)} failed in {task.phase} ({task.error_class}): {task.error}"
        case e.TaskCancelled(task=task, reason=reason):
            return logging.INFO, f"{_name(task)} cancelled in {task.phase}" + (f": {reason}" if reason else "")
        case e.TaskRescued(task=task, worker=worker):
            return logging.WARNING, f"{_name(task)} rescued in {task.phase} from worker {worker}"
        case e.TaskLeaseLost(task=task):
            return logging.WARNING, f"{_name(task)} lost its lease in {task.phase}; result discarded"
        case e.LoopBlocked(task=task, seconds=seconds):
            return logging.WARNING, (
                f"{_name(task)} blocked the event loop for {seconds:.1f} s in {task.phase}, and no other async handler "
                f"could run: use await, or a def handler"
            )
        case e.WorkerHung(task=task, reason=reason, because=because):
            return (
                logging.ERROR,
                f"{_name(task)} does not stop in {task.phase} ({reason}): {because}. This process ends",
            )
        case e.WorkerUnusable(worker=worker, reason=reason):
            return logging.ERROR, f"worker {worker} {reason}; this process ends"
        case e.WorkerOutdated(worker=worker, error=error):
            return logging.ERROR, f"worker {worker} drains: {error}"
        case e.ScheduleFailed(pipeline=pipeline, schedule=schedule, error=error):
            return logging.ERROR, f"schedule {schedule} of {pipeline} adds no task: {error}"
        case e.ResourceFailed(error=error):
            return logging.ERROR, error
        case e.DefinitionReplaced(pipeline=pipeline, unknown=unknown):
            left = f"; other workers must serve {', '.join(unknown)}" if unknown else ""
            return logging.WARNING, (
                f"pipeline {pipeline}: the published definition is newer than this code's, and tasks follow it{left} "
                f"(to go back to this code's: onerow publish APP --force)"
            )
        case e.TasksStranded():
            return logging.WARNING, stranded(event)
        case e.StoreUnreachable(error=error):
            return logging.ERROR, f"store unavailable, retrying: {error}"
        case e.StoreGone(worker=worker, error=error):
            return logging.CRITICAL, f"worker {worker} stops: {error}"
        case e.StoreBack():
            return logging.INFO, "store available again"
        case e.AlertLost(count=count, error=error):
            return logging.ERROR, f"{count} alerts could not be sent and are dropped: {error}"
        case e.WebhookFailed(webhook=webhook, error=error, retry_after=wait):
            return logging.ERROR, f"webhook {webhook}: {error}" + (f"; retrying in {wait:g} s" if wait else "")
        case e.RoleFailed(role=role, error=error):
            return logging.ERROR, f"{role} failed, retrying: {error}"
        case e.MessageHandled(inbox=inbox, message_id=message_id, tasks=tasks, acknowledged=acknowledged):
            ending = "acknowledged" if acknowledged else "not acknowledged"
            states = ", ".join(f"{_name(task)} is {task.status}" for task in tasks)
            return logging.DEBUG, f"inbox {inbox}: message {message_id} {ending}{states and f': {states}'}"
        case e.MessageRejected(inbox=inbox, message_id=message_id, reason=reason):
            return logging.WARNING, f"inbox {inbox}: message {message_id} rejected: {reason}"
        case e.SignaturesRefused(inbox=inbox, count=count):
            return logging.WARNING, f"inbox {inbox}: {count} requests refused: signature missing, wrong or too old"
        case e.InboxUnreachable(inbox=inbox, error=error):
            return logging.ERROR, f"inbox {inbox} unavailable, retrying: {error}"
        case e.InboxBack(inbox=inbox):
            return logging.INFO, f"inbox {inbox} available again"
        case e.HookOverdue(hook=hook, limit=limit):
            return logging.ERROR, f"hook {hook} runs longer than {limit:g} s; it gets no events until it returns"
        case e.HookEventsDropped(hook=hook, count=count):
            return logging.ERROR, f"hook {hook} was not called for {count} events; it is overdue or too slow"
    return None


def fields_of(event: e.Event) -> dict[str, Any]:
    """Return the fields of an event for its log record, without the empty ones."""
    fields: dict[str, Any] = {"event": type(event).__name__}
    if isinstance(event, e.TaskEvent):
        task = event.task
        fields |= {"task_id": task.task_id, "pipeline": task.pipeline, "phase": task.phase, "attempt": task.attempt}
        fields |= {"error_class": task.error_class, "error": task.error}
    fields |= {name: getattr(event, name) for name in event.__struct_fields__ if name not in _NO_FIELDS}
    if isinstance(event, e.TaskRescued):
        fields["rescued_from"] = fields.pop("worker")
    return {name: value for name, value in fields.items() if value not in (None, "", ())}


class LogLines:
    """The log lines of a queue's events: of failed hooks always, of all others while a worker runs in this process."""

    def __init__(self, events: e.Events, masker: Callable[[], Masker]) -> None:
        self._events = events
        self._masker = masker
        self._lock = threading.Lock()
        self._workers: list[str] = []
        self._kinds: tuple[type[e.Event], ...] = ()
        events.on_hook_error = self._on_hook_error

    def start(self, worker: str) -> None:
        """Log events from now on; several workers of one queue write each line once."""
        with self._lock:
            self._workers.append(worker)
            if len(self._workers) == 1:
                self._kinds = _LOGGED + (_PER_TASK if log.isEnabledFor(logging.DEBUG) else ())
                for kind in self._kinds:
                    self._events.on(kind, self._line)

    def stop(self, worker: str) -> None:
        """Undo `start`."""
        with self._lock:
            self._workers.remove(worker)
            if not self._workers:
                for kind in self._kinds:
                    self._events.off(kind, self._line)

    def _line(self, event: e.Event) -> None:
        found = describe(event)
        if found is not None:
            self._write(*found, fields_of(event), event.trace if isinstance(event, e.RoleFailed) else "")

    def _on_hook_error(self, event: e.Event, error: BaseException) -> None:
        fields = fields_of(event) | {"event": "HookFailed", "error_class": type(error).__name__, "error": str(error)}
        raised = f"a hook for {type(event).__name__} raised {error!r}"
        self._write(logging.ERROR, raised, fields, trace_of(error).rstrip("\n"))

    def _write(self, level: int, sentence: str, fields: dict[str, Any], trace: str) -> None:
        if not log.isEnabledFor(level):
            return
        masker = self._masker()
        if len(self._workers) == 1:
            fields.setdefault("worker", self._workers[0])
        fields = {
            name: neutral(masker.text(value)) if isinstance(value, str) else value for name, value in fields.items()
        }
        # Only a traceback may span lines: a line feed in a title must not look like another log line.
        line = neutral(masker.text(sentence))
        record = log.makeRecord(log.name, level, __file__, 0, "%s", (line,), None, "_write", fields)
        record.exc_text = neutral_lines(masker.text(trace)) if trace else None
        log.handle(record)


def stranded(event: e.TasksStranded) -> str:
    """Return a sentence for it, also for the command that publishes."""
    waits = "task waits" if event.count == 1 else "tasks wait"
    return (
        f"{event.count:,} {waits} at {event.pipeline}.{event.phase}, which this code does not have: "
        f"put renamed_from={event.phase!r} on the phase that replaces it, or start a worker with the old code"
    )


def _wait(task: Task) -> str:
    wait = task.run_at - task.updated_at
    return spell_duration(wait if wait < timedelta(seconds=1) else timedelta(seconds=round(wait.total_seconds())))


def _name(task: Task) -> str:
    return f"task {task.task_id}" + (f" “{task.title}”" if task.title else "")
