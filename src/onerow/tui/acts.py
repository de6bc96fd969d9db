"""Operations of the monitor: what each asks for, the command that does the same, and how it is run."""

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from onerow.cli.session import tasks_text
from onerow.core.errors import BadInput, with_fix
from onerow.core.rates import parse_rate
from onerow.core.times import parse_moment
from onerow.engine.queue.bulk import Selection, filter_for
from onerow.engine.queue.operations import BULK_DEFAULTS
from onerow.engine.queue.progress import Progress
from onerow.engine.queue.queue import Queue
from onerow.engine.views import Views
from onerow.engine.views.counts import Matching

TYPE_COUNT_ABOVE = 100
"""A final operation on more tasks than this is confirmed by typing their number."""
_SHOWN_IDS = 4
Values = Mapping[str, str]
Report = Callable[[str], None]


class Field(NamedTuple):
    """One input of a dialog; `check` raises BadInput for a wrong value."""

    name: str
    label: str
    value: str = ""
    required: bool = False
    check: Callable[[str], object] = str


@dataclass
class Act:
    """One operation, as a dialog shows it."""

    verb: str
    question: str
    command_of: Callable[[Values], str]
    perform: Callable[[Values, Report], str]
    fields: tuple[Field, ...] = ()
    final: bool = False
    typed: int | None = None  # the number that must be typed to confirm
    remark: str = ""
    values: dict[str, str] = field(default_factory=dict)

    def command(self) -> str:
        return self.command_of(self.values)

    def run(self, report: Report) -> str:
        """Do it; return what was done."""
        return self.perform(self.values, report)

    def problem(self) -> str:
        """Return what is wrong with the values; '' if they are right."""
        for each in self.fields:
            text = self.values.get(each.name, each.value).strip()
            if not text and each.required:
                return f"{each.label} is missing"
            if text:
                try:
                    each.check(text)
                except BadInput as error:
                    return with_fix(error)
        return ""


class Targets(NamedTuple):
    """The tasks of an operation: ids, or a query with the number of tasks that match."""

    ids: tuple[str, ...] = ()
    query: str | None = None
    number: int = 0
    exact: bool = True
    latest: bool = False  # there are older ones that are not among them

    @property
    def text(self) -> str:
        if len(self.ids) == 1:
            return f"task {self.ids[0]}"
        if self.latest:
            return f"the latest {tasks_text(self.number)} of this cause"
        return tasks_text(self.number) if self.exact else f"at least {tasks_text(self.number)}"

    def words(self) -> list[str]:
        """Return them as words of a command."""
        if self.query is not None:
            return ["--where", self.query]
        more = [f"… ({len(self.ids)} ids)"] if len(self.ids) > _SHOWN_IDS else []
        return [*self.ids[:_SHOWN_IDS], *more]

    def select(self, queue: Queue, operation: str) -> Selection:
        if self.query is not None:
            return queue.select(filter_for(queue, operation, self.query))
        return queue.select(ids=self.ids)


def by_ids(ids: Sequence[str]) -> Targets:
    return Targets(ids=tuple(ids), number=len(ids))


def by_query(queue: Queue, views: Views, operation: str, query: str) -> Targets:
    """Return the tasks that an operation on a query changes, with their number; reads the store."""
    found: Matching = views.count(filter_for(queue, operation, query))
    return Targets(query=query, number=found.count, exact=found.looked_back_to is None)


def awaited_signal(awaiting: str | None) -> str:
    """Return the name of the signal that a task waits for; '' if it waits for none."""
    kind, _, name = (awaiting or "").partition(":")
    return name if kind == "signal" else ""


NOTE = Field("note", "reason")
PACE = Field("pace", "pace, like 20/min", check=lambda text: parse_rate(text, "pace"))


def task_act(queue: Queue, operation: str, targets: Targets, *, initial: Values | None = None) -> Act:
    """Return the dialog of an operation on tasks, by the name of its command."""
    given = dict(initial or {})
    fields = tuple(
        each._replace(value=given.get(each.name, each.value)) for each in _fields_of(queue, operation, targets)
    )
    final = BULK_DEFAULTS[operation].final
    typed = targets.number if final and targets.number > TYPE_COUNT_ABOVE else None
    remark = ""
    if any(each.name == PACE.name for each in fields):
        remark = "with a pace, it stops when this monitor ends; its command does the rest"
    elif targets.number > 1 and operation == "signal":
        remark = "the command sends it to one task: run it with the id of each"
    return Act(
        verb=operation,
        question=f"{_SENTENCE[operation]} {targets.text}?",
        command_of=lambda values: _command(operation, targets, values),
        perform=lambda values, report: _perform(queue, operation, targets, values, report),
        fields=fields,
        final=final,
        typed=typed,
        remark=remark,
    )


_SENTENCE = {
    "retry": "Retry",
    "cancel": "Cancel",
    "replay": "Replay, and clear the results from that phase on, of",
    "finish": "Mark as completed, without running,",
    "reschedule": "Reschedule",
    "set-priority": "Set the priority of",
    "signal": "Send a signal to",
}
_OPTION = {"phase": "--phase", "run_at": "--run-at", "priority": "--priority", "pace": "--pace", "note": "--note"}


def _fields_of(queue: Queue, operation: str, targets: Targets) -> tuple[Field, ...]:
    many = (PACE,) if targets.number > 1 else ()
    match operation:
        case "replay":
            return (Field("phase", "from phase (empty: the first)"), *many, NOTE)
        case "reschedule":
            return (Field("run_at", "due: now, +10m or a time", "now", True, lambda text: parse_moment(text, datetime.now().astimezone())), NOTE)  # fmt: skip
        case "set-priority":
            return (Field("priority", "priority, -100 to 100, lower runs first", "0", True, parse_priority), NOTE)
        case "signal":
            return (Field("name", "signal", required=True), Field("payload", "payload as JSON", check=_json))
        case "finish":
            return (Field("result", "result as JSON", check=_json), NOTE)
    return (*many, NOTE)


def parse_priority(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 1000
    if not -100 <= number <= 100:
        raise BadInput(f"a priority is a whole number from -100 to 100, not {text!r}", field="priority")
    return number


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadInput(f"this is not JSON ({error})", fix='quote a text: "like this"', field="payload") from None


def _command(operation: str, targets: Targets, values: Values) -> str:
    if operation == "signal":
        words = [
            "onerow",
            "signal",
            targets.ids[0] if len(targets.ids) == 1 else "ID",
            values.get("name", "").strip() or "NAME",
        ]
        return shlex.join(words + (["--payload", text] if (text := values.get("payload", "").strip()) else []))
    words = ["onerow", operation, *targets.words()]
    for name, option in (*_OPTION.items(), ("result", "--result")):
        if text := values.get(name, "").strip():
            words += [option, text]
    return shlex.join(words)


def _perform(queue: Queue, operation: str, targets: Targets, values: Values, report: Report) -> str:
    selection = targets.select(queue, operation)

    def progress(so_far: Progress) -> None:
        report(f"{operation} {so_far.done + so_far.refused:,} of {so_far.matched:,}")

    text = {name: value.strip() for name, value in values.items() if value.strip()}
    how: dict[str, Any] = {"progress": progress}
    if "pace" in text:
        how["pace"] = text["pace"]
    if operation != "signal":
        how["note"] = text.get("note", "")
    match operation:
        case "retry":
            done = selection.retry(**how)
        case "cancel":
            done = selection.cancel(**how)
        case "replay":
            done = selection.replay(text.get("phase"), **how)
        case "finish":
            done = selection.finish(result=_json(text["result"]) if "result" in text else None, **how)
        case "reschedule":
            done = selection.reschedule(parse_moment(text["run_at"], queue.store.now()), **how)
        case "set-priority":
            done = selection.set_priority(parse_priority(text["priority"]), **how)
        case _:
            done = selection.signal(text["name"], _json(text["payload"]) if "payload" in text else None, **how)
    return _outcome(operation, done)


def _outcome(operation: str, done: Progress) -> str:
    said = f"{operation}: {tasks_text(done.done)}"
    if done.refused:
        task_id, why = done.problems[0]
        said += f"; {done.refused:,} refused, for example {task_id}: {why}"
    return said
