"""The acts of people and programs, once for the API and the pages: name, role, arguments, and the equivalent command."""

import logging
import shlex
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from onerow.core import values
from onerow.core.errors import BadInput
from onerow.core.rates import parse_rate
from onerow.core.times import parse_moment
from onerow.engine.control.definitions import UNCHANGED
from onerow.engine.output.terminal import neutral
from onerow.engine.queue.bulk import Selection, filter_for
from onerow.engine.queue.operations import BULK_DEFAULTS
from onerow.engine.queue.progress import Progress
from onerow.engine.queue.queue import Queue
from onerow.web.security.roles import Role

Note = Annotated[str, Meta(max_length=1000, description="The reason; kept in the task's history.")]
_MOST_IDS = 100
_JSON_OPTIONS = ("payload", "result", "metadata")
_audit = logging.getLogger("onerow.web.audit")


# ── arguments: the fields have the names of the command's options ──


class Arguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """No arguments."""


class Noted(Arguments, frozen=True, kw_only=True):
    note: Note = ""


class ReplayArguments(Noted, frozen=True, kw_only=True):
    phase: Annotated[str | None, Meta(description="The phase to start from; default: the first.")] = None


class FinishArguments(Noted, frozen=True, kw_only=True):
    phase_only: Annotated[bool, Meta(description="Complete only the current phase.")] = False
    result: Annotated[Any, Meta(description="The result of the phase, a JSON value.")] = None


class FailArguments(Noted, frozen=True, kw_only=True):
    error: Annotated[str, Meta(min_length=1, max_length=10_000, description="The reason; it becomes the task's error.")]
    error_class: str = "permanent"


class AnnotateArguments(Arguments, frozen=True, kw_only=True):
    metadata: Annotated[dict[str, Any], Meta(description="Replaces the task's metadata.")]


class SignalArguments(Arguments, frozen=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1, max_length=200, description="Name of the signal.")]
    payload: Any = None
    signal_id: Annotated[str, Meta(max_length=200, description="A signal sent again with this id counts once.")] = ""


class RescheduleArguments(Noted, frozen=True, kw_only=True):
    run_at: Annotated[str, Meta(max_length=100, description="now, +10m, or a time with a zone (ISO 8601).")]


class PriorityArguments(Noted, frozen=True, kw_only=True):
    priority: Annotated[int, Meta(ge=-100, le=100, description="-100…100, lower runs first.")]


class PauseArguments(Arguments, frozen=True, kw_only=True):
    reason: Annotated[str, Meta(max_length=1000, description="The reason; `why` shows it.")] = ""


Slots = Annotated[int, Meta(ge=1, le=10_000)]
Rate = Annotated[str, Meta(max_length=100)]


class LimitArguments(Arguments, frozen=True, kw_only=True):
    concurrency: Annotated[
        Slots | Literal["unchanged"] | None, Meta(description="Tasks of the phase at once; null: no limit.")
    ] = UNCHANGED
    per_key: Annotated[Slots | Literal["unchanged"] | None, Meta(description="The same for each limit key.")] = (
        UNCHANGED
    )
    rate: Annotated[Rate | None, Meta(description="Starts per time, as in 60/min; null: no limit.")] = UNCHANGED
    rate_per_key: Annotated[Rate | None, Meta(description="The same for each limit key.")] = UNCHANGED
    reason: Annotated[str, Meta(max_length=1000, description="The reason; `why` shows it.")] = ""
    reset: Annotated[bool, Meta(description="Return to all limits and rates in the code.")] = False


# ── who did what ──


def audit(by: str, what: str) -> None:
    """Write who did what to the log `onerow.web.audit`."""
    _audit.info("%s: %s", neutral(by), neutral(what))


def chosen(ids: Sequence[str] | None, where: str | None) -> str:
    """Return the tasks of an act as on the command line."""
    return shlex.join(_words(ids, where)) + _more(ids)


def _words(ids: Sequence[str] | None, where: str | None) -> list[str]:
    return ["--where", where or ""] if ids is None else list(ids)[:_MOST_IDS]


def _more(ids: Sequence[str] | None) -> str:
    more = len(ids or ()) - _MOST_IDS
    return f"  # and {more} more ids" if more > 0 else ""


# ── the acts ──


class TaskAct(Struct, frozen=True, kw_only=True):
    """An act on tasks, by id or by query. summary: as in `onerow --help`."""

    name: str
    summary: str
    role: Role = Role.OPERATOR
    arguments: type[Arguments] = Noted
    apply: Callable[[Selection, Any, Queue, dict[str, Any]], Progress]

    @property
    def final(self) -> bool:
        """Whether no act undoes it."""
        return BULK_DEFAULTS[self.name].final

    def select(self, queue: Queue, *, ids: Sequence[str] | None = None, where: str | None = None) -> Selection:
        """Return the tasks that the act would change; `.count` is their number."""
        if (ids is None) == (where is None):
            raise BadInput("give ids, or a query in where", field="ids")
        if ids is not None:
            list(selection := queue.select(ids=ids))  # raises for an unknown id before any task is changed
            return selection
        assert where is not None
        return queue.select(filter_for(queue, self.name, where))

    def check(self, queue: Queue, arguments: Arguments, pace: str | None) -> None:
        """Raise BadInput for a mistake that does not depend on the tasks: in the background, no caller learns of it."""
        if pace is not None:
            parse_rate(pace, "pace")
        self.apply(queue.select(ids=[]), arguments, queue, {})

    def run(self, queue: Queue, tasks: Selection, arguments: Arguments, by: str, on: str, **bulk: Any) -> Progress:
        """Apply the act. on: the tasks as `chosen` names them; bulk: the options of a Selection: pace, limit, …"""
        how = bulk if self.arguments is AnnotateArguments else {"by": by, **bulk}
        done = self.apply(tasks, arguments, queue, how)
        # Without the arguments: payloads, results and metadata may be secret.
        audit(by, f"onerow {self.name} {on}: {done.done} done, {done.refused} refused")
        return done

    def command(
        self,
        arguments: Arguments,
        *,
        ids: Sequence[str] | None = None,
        where: str | None = None,
        pace: str | None = None,
    ) -> str:
        """Return the command line that does the same; a line for each task if the command takes only one."""
        if self.name == "signal":
            given = msgspec.structs.asdict(arguments)
            name, options = given.pop("name"), _options(given)
            lines = [shlex.join(["onerow", "signal", task, name, *options]) for task in (ids or ["ID"])[:_MOST_IDS]]
            return "\n".join(lines)
        options = _options(msgspec.structs.asdict(arguments)) + (["--pace", pace] if pace else [])
        return shlex.join(["onerow", self.name, *_words(ids, where), *options]) + _more(ids)


class ControlAct(Struct, frozen=True, kw_only=True):
    """An act on a phase, a pipeline (phase '*') or a schedule (phase 'cron:NAME')."""

    name: str
    summary: str
    role: Role = Role.OPERATOR
    arguments: type[Arguments] = Arguments
    apply: Callable[[Queue, str, str, Any, str], bool]

    def run(self, queue: Queue, pipeline: str, phase: str, arguments: Arguments, by: str) -> bool:
        """Apply the act; return whether it changed something."""
        changed = self.apply(queue, pipeline, phase, arguments, by)
        audit(by, self.command(pipeline, phase, arguments))
        return changed

    def command(self, pipeline: str, phase: str, arguments: Arguments) -> str:
        """Return the command line that does the same."""
        words = ["onerow", self.name, pipeline, *([] if phase == "*" else [phase])]
        given = msgspec.structs.asdict(arguments)
        if isinstance(arguments, LimitArguments):
            given = {name: "none" if value is None else value for name, value in given.items() if value != UNCHANGED}
            if "concurrency" in given:
                words.append(str(given.pop("concurrency")))
        return shlex.join(words + _options(given))


class NamedAct(Struct, frozen=True, kw_only=True):
    """An act on one thing that has a name: a worker, or an operation on many tasks."""

    name: str
    summary: str
    role: Role = Role.OPERATOR
    arguments: type[Arguments] = Arguments
    words: tuple[str, ...]  # of the command, before the name of the thing
    apply: Callable[[Queue, str, str], None]

    def run(self, queue: Queue, thing: str, by: str) -> None:
        """Ask for it; the worker or operation follows within some seconds."""
        self.apply(queue, values.check_text(thing, "name", 200), by)
        audit(by, self.command(thing))

    def command(self, thing: str) -> str:
        """Return the command line that does the same."""
        return shlex.join([*self.words, thing])


def _options(given: dict[str, Any]) -> list[str]:
    """Return arguments as options of a command, without those that have their default."""
    words: list[str] = []
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        if name in _JSON_OPTIONS:
            words += [] if value is None else [option, _json(value)]
        elif value is True:
            words.append(option)
        elif value is not None and value is not False and value != "" and (name, value) != ("error_class", "permanent"):
            words += [option, str(value)]
    return words


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _reschedule(tasks: Selection, given: RescheduleArguments, queue: Queue, how: dict[str, Any]) -> Progress:
    return tasks.reschedule(parse_moment(given.run_at, queue.store.now(), "run_at"), note=given.note, **how)


TASK_ACTS: dict[str, TaskAct] = {
    act.name: act
    for act in (
        TaskAct(
            name="retry",
            summary="Run failed tasks again with a new retry budget.",
            apply=lambda tasks, given, queue, how: tasks.retry(note=given.note, **how),
        ),
        TaskAct(
            name="cancel",
            summary="Cancel tasks and stop their running work.",
            apply=lambda tasks, given, queue, how: tasks.cancel(note=given.note, **how),
        ),
        TaskAct(
            name="replay",
            summary="Run ended tasks again from an earlier phase.",
            arguments=ReplayArguments,
            apply=lambda tasks, given, queue, how: tasks.replay(given.phase, note=given.note, **how),
        ),
        TaskAct(
            name="finish",
            summary="Mark tasks, or their current phase, as completed.",
            arguments=FinishArguments,
            apply=lambda tasks, given, queue, how: tasks.finish(
                result=given.result, phase_only=given.phase_only, note=given.note, **how
            ),
        ),
        TaskAct(
            name="fail",
            summary="Fail waiting tasks with a reason.",
            arguments=FailArguments,
            apply=lambda tasks, given, queue, how: tasks.fail(
                given.error, error_class=given.error_class, note=given.note, **how
            ),
        ),
        TaskAct(
            name="annotate",
            summary="Replace the metadata of tasks.",
            arguments=AnnotateArguments,
            apply=lambda tasks, given, queue, how: tasks.annotate(given.metadata, **how),
        ),
        TaskAct(
            name="signal",
            summary="Send a signal to a task.",
            arguments=SignalArguments,
            apply=lambda tasks, given, queue, how: tasks.signal(
                given.name, given.payload, signal_id=given.signal_id, **how
            ),
        ),
        TaskAct(
            name="reschedule",
            summary="Change when waiting tasks are due.",
            arguments=RescheduleArguments,
            apply=_reschedule,
        ),
        TaskAct(
            name="set-priority",
            summary="Change the priority of tasks.",
            arguments=PriorityArguments,
            apply=lambda tasks, given, queue, how: tasks.set_priority(given.priority, note=given.note, **how),
        ),
    )
}
"""Every act on tasks by the name of its command."""

_CRON = "cron:"


def _pause(queue: Queue, pipeline: str, phase: str, given: PauseArguments, by: str) -> bool:
    if phase.startswith(_CRON):
        queue.crons.pause(pipeline, phase.removeprefix(_CRON), by=by, reason=given.reason)
    else:
        queue.pause(pipeline, phase, by=by, reason=given.reason)
    return True


def _resume(queue: Queue, pipeline: str, phase: str, given: Arguments, by: str) -> bool:
    if phase.startswith(_CRON):
        return queue.crons.resume(pipeline, phase.removeprefix(_CRON))
    return queue.resume(pipeline, phase)


def _limit(queue: Queue, pipeline: str, phase: str, given: LimitArguments, by: str) -> bool:
    if given.reset:
        if {given.concurrency, given.per_key, given.rate, given.rate_per_key} != {UNCHANGED}:
            raise BadInput("reset removes all limits and rates", fix="leave the others out", field="reset")
        return queue.reset_limit(pipeline, phase)
    queue.set_limit(
        pipeline, phase, concurrency=given.concurrency, per_key=given.per_key, rate=given.rate,
        rate_per_key=given.rate_per_key, by=by, reason=given.reason,
    )  # fmt: skip
    return True


CONTROL_ACTS: dict[str, ControlAct] = {
    act.name: act
    for act in (
        ControlAct(
            name="pause",
            summary="Stop claiming from a phase or pipeline, or pause a schedule.",
            arguments=PauseArguments,
            apply=_pause,
        ),
        ControlAct(name="resume", summary="Resume a paused phase, pipeline or schedule.", apply=_resume),
        ControlAct(
            name="limit",
            summary="Set the limits and rates of a phase.",
            arguments=LimitArguments,
            apply=_limit,
        ),
    )
}
"""Every act on phases and schedules by the name of its command."""


NAMED_ACTS: dict[str, NamedAct] = {
    act.name: act
    for act in (
        NamedAct(
            name="drain",
            summary="Ask a worker to claim no more, finish its tasks and end; no other process takes its place.",
            words=("onerow", "drain"),
            apply=lambda queue, worker, by: queue.drain(worker, by=by),
        ),
        NamedAct(
            name="stop",
            summary="Stop an operation on many tasks; what it has changed stays so.",
            words=("onerow", "operations", "--stop"),
            apply=lambda queue, name, by: queue.stop_bulk(name, by=by),
        ),
    )
}
"""Every act on workers and on operations by its name."""
