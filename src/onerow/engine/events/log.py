"""Writes log lines for events; no other module does. Payloads are never logged, and secrets are masked."""

import logging
import traceback

from onerow.core.task import Task
from onerow.engine.events import events as e
from onerow.engine.output.masking import NO_SECRETS, Masker
from onerow.engine.output.terminal import neutral, neutral_lines

log = logging.getLogger("onerow")


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
            return logging.WARNING, f"{_name(task)} failed in {task.phase} and waits until {task.run_at}: {task.error}"
        case e.TaskFailed(task=task):
            return logging.ERROR, f"{_name(task)} failed in {task.phase} ({task.error_class}): {task.error}"
        case e.TaskCancelled(task=task):
            return logging.INFO, f"{_name(task)} cancelled in {task.phase}"
        case e.TaskRescued(task=task, worker=worker):
            return logging.WARNING, f"{_name(task)} rescued in {task.phase} from worker {worker}"
        case e.TaskLeaseLost(task=task):
            return logging.WARNING, f"{_name(task)} lost its lease in {task.phase}; the result was discarded"
        case e.WorkerHung(task=task, reason=reason):
            return logging.ERROR, f"{_name(task)} would not stop in {task.phase} ({reason}); this process ends"
        case e.WorkerOutdated(worker=worker, error=error):
            return logging.ERROR, f"worker {worker} drains: {error}"
        case e.PhaseTooHeavy(pipeline=pipeline, phase=phase):
            return logging.WARNING, f"{pipeline}.{phase} takes more than this host has; it is never claimed here"
        case e.DefinitionReplaced(pipeline=pipeline, unknown=unknown):
            left = f"; other workers must serve {', '.join(unknown)}" if unknown else ""
            return logging.WARNING, (
                f"pipeline {pipeline}: the published definition is newer than this code's, and tasks follow it{left} "
                f"(to go back to this code's: onerow publish APP --force)"
            )
        case e.StoreUnreachable(error=error):
            return logging.ERROR, f"the store is away, trying again: {error}"
        case e.StoreGone(worker=worker, error=error):
            return logging.CRITICAL, f"worker {worker} stops: {error}"
        case e.StoreBack():
            return logging.INFO, "the store is back"
        case e.AlertLost(count=count, error=error):
            return logging.ERROR, f"{count} alerts could not be sent and are given up: {error}"
        case e.RoleFailed(role=role, error=error):
            return logging.ERROR, f"{role} met an error and goes on: {error}"
        case e.HookOverdue(hook=hook, limit=limit):
            return logging.ERROR, f"hook {hook} runs longer than {limit:g} s; it gets no events until it returns"
        case e.HookEventsDropped(hook=hook, count=count):
            return logging.ERROR, f"hook {hook} was not called for {count} events; it is overdue or too slow"
    return None


def write_log(events: e.Events, masker: Masker = NO_SECRETS) -> None:
    """Log events, with secrets masked and terminal control characters replaced."""
    quiet = (e.TaskAdvanced, e.TaskCompleted)

    def write(level: int, sentence: str, trace: str = "") -> None:
        # Only a traceback may span lines: a line feed in a title must not look like another log line.
        line = neutral(masker.text(sentence))
        log.log(level, "%s", f"{line}\n{neutral_lines(masker.text(trace))}" if trace else line)

    def line(event: e.Event) -> None:
        found = describe(event)
        if found is not None and log.isEnabledFor(found[0]):
            write(*found, event.trace if isinstance(event, e.RoleFailed) else "")

    kinds: list[type[e.Event]] = [
        e.WorkerStarted, e.WorkerStopped, e.TaskRetried, e.TaskFailed, e.TaskCancelled, e.TaskRescued, e.TaskLeaseLost,
        e.WorkerHung, e.WorkerOutdated, e.PhaseTooHeavy, e.DefinitionReplaced, e.StoreUnreachable, e.StoreGone, e.StoreBack, e.RoleFailed, e.AlertLost,
        e.HookOverdue, e.HookEventsDropped,
    ]  # fmt: skip
    if log.isEnabledFor(logging.DEBUG):
        kinds += quiet
    for kind in kinds:
        events.on(kind, line)
    events.on_hook_error = lambda event, error: write(
        logging.ERROR,
        f"a hook for {type(event).__name__} raised {error!r}",
        "".join(traceback.format_exception(error)).rstrip("\n"),
    )


def _name(task: Task) -> str:
    return f"task {task.task_id}" + (f" “{task.title}”" if task.title else "")
