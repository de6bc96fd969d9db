"""The page of one task: attempts, segments, steps, signals, relatives, history, and what its results name."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from onerow.core import values
from onerow.core.corruption import shown
from onerow.core.history import Entry
from onerow.core.plan import Plan
from onerow.core.status import PROCESSING
from onerow.core.steps import RESERVED
from onerow.core.task import Task
from onerow.core.times import read
from onerow.engine.control.definitions import Pause
from onerow.engine.output.masking import Masker
from onerow.engine.views.rows import Row, TaskPage
from onerow.engine.views.segments import PhaseSpan, Segment, segments, spans
from onerow.engine.views.timeline import Moment, TaskView
from onerow.engine.views.tracebacks import Traceback, find_trace
from onerow.ports import LogLine, TaskCount

_MOST_LINKS = 50
_LONGEST_LINK = 2_000
_URL = re.compile(r"(?:https?|s3|gs|az|abfss?|ftps?|sftp|file|mongodb|postgres(?:ql)?)://\S+", re.IGNORECASE)
_PATH = re.compile(r"(?:~|\.{1,2})?/[^\n\0]+|[A-Za-z]:\\[^\n\0]+|[^\s/\0]+(?:/[^\s/\0]+)+\.\w{1,8}")
_RESCUED = re.compile(r"worker (.+) died or lost its lease")


class AttemptLine(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt."""

    phase: str
    attempt: int
    worker: str
    started_at: datetime
    ended_at: datetime | None  # None while it runs
    run_ms: int
    outcome: str  # the `what` of its history entry; 'running' while it runs
    error_class: str = ""
    exception: str = ""
    message: str = ""
    where: str = ""  # file.py:12 in function
    note: str = ""
    traceback: Traceback | None = None


class StepLine(msgspec.Struct, frozen=True, kw_only=True):
    """One record that a handler keeps across attempts."""

    phase: str
    name: str
    kind: Literal["step", "wait", "spawn", "join", "sleep"]
    at: datetime
    result: Any = None
    awaiting: str = ""  # set while a wait is open
    until: datetime | None = None
    expired: bool = False


class SignalLine(msgspec.Struct, frozen=True, kw_only=True):
    """A signal that was received."""

    name: str
    id: str
    at: datetime
    taken_at: datetime | None = None  # None: no wait has taken it yet
    payload: Any = None  # None if it was taken: it is the result of the wait
    by: str = ""


class Awaited(msgspec.Struct, frozen=True):
    """The signal that the task is parked for."""

    name: str
    phase: str
    since: datetime
    deadline: datetime | None


class Link(msgspec.Struct, frozen=True):
    """A URL or a path that the results name."""

    where: str  # dotted path in the results
    kind: Literal["url", "path"]
    target: str

    @property
    def opens(self) -> bool:
        """Whether a browser can open it."""
        return self.kind == "url" and self.target.lower().startswith(("http://", "https://"))


class TaskDetail(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the page of a task shows. Texts and values are masked."""

    at: datetime
    view: TaskView
    attempts: list[AttemptLine]  # newest first
    segments: list[Segment]  # oldest first, without gaps
    spans: list[PhaseSpan]  # phases in order
    steps: list[StepLine]
    awaited: Awaited | None
    signals: list[SignalLine]  # newest first
    children: TaskPage | None  # the first page; None if it has none
    children_counts: list[TaskCount]
    parent: Row | None
    history: list[Moment]  # newest first: every change, with who made it and the reason
    links: list[Link]
    paused: Pause | None


class Relatives(msgspec.Struct, frozen=True):
    """What was read about the parent and the children of a task."""

    parent: Row | None = None
    children: TaskPage | None = None
    counts: list[TaskCount] = []


def build_detail(
    task: Task,
    view: TaskView,
    plan: Plan | None,
    now: datetime,
    *,
    pause: Pause | None,
    lines: Sequence[LogLine],
    p50: dict[str, int | None],
    relatives: Relatives,
    masker: Masker,
) -> TaskDetail:
    """Build the page of a task. view: already masked; lines: the end of its log."""
    found = segments(task, plan, now, pause)
    masked = masker.text
    history = [
        replace(moment, error=masked(moment.error), note=masked(moment.note))
        for moment in reversed(view.timeline)
        if moment.what != "running"
    ]
    results = view.task.get("results")
    return TaskDetail(
        at=now,
        view=view,
        attempts=list(_attempts(task, now, lines, masker)),
        segments=found,
        spans=list(spans(task, view.phases, found, p50)),
        steps=list(_steps(view.task.get("steps"))),
        awaited=_awaited(task, found),
        signals=_signals(task, masker),
        children=relatives.children,
        children_counts=relatives.counts,
        parent=relatives.parent,
        history=history,
        links=list(_links(results)) if isinstance(results, Mapping) else [],
        paused=pause,
    )


def has_failed(task: Task) -> bool:
    """Whether an attempt of the task has failed, so that its log has a traceback."""
    return any(entry.error_class and entry.ms is not None for entry in shown(task, "history"))


def _attempts(task: Task, now: datetime, lines: Sequence[LogLine], masker: Masker) -> Iterator[AttemptLine]:
    if task.status is PROCESSING and task.started_at is not None:
        ms = max(0, int((now - task.started_at).total_seconds() * 1000))
        yield AttemptLine(
            phase=task.phase, attempt=task.attempt, worker=task.leased_by or "", started_at=task.started_at,
            ended_at=None, run_ms=ms, outcome="running",
        )  # fmt: skip
    timeline = [entry for entry in shown(task, "history") if isinstance(entry, Entry) and entry.ms is not None]
    for entry in reversed(timeline):
        ms = max(0, entry.ms or 0)
        lost = _RESCUED.fullmatch(entry.note) if entry.what == "rescued" else None
        yield AttemptLine(
            phase=entry.phase, attempt=entry.attempt, worker=lost[1] if lost else entry.by,
            started_at=entry.when - timedelta(milliseconds=ms), ended_at=entry.when, run_ms=ms,
            outcome=entry.what, error_class=entry.error_class, exception=entry.exception,
            message=masker.text(entry.error), where=entry.where, note=masker.text(entry.note),
            traceback=find_trace(lines, entry.phase, entry.attempt, entry.when) if entry.error_class else None,
        )  # fmt: skip


def _steps(steps: Any) -> Iterator[StepLine]:
    if not isinstance(steps, Mapping):  # an unreadable row
        return
    for phase, records in steps.items():
        for name, record in records.items():
            prefix = next((each for each in RESERVED if name.startswith(each)), "step")
            yield StepLine(
                phase=phase,
                name=name,
                kind=prefix.rstrip(":"),  # type: ignore[arg-type]
                at=read(record["at"]),
                result=record.get("result"),
                awaiting=record.get("awaiting", "").removeprefix("signal:"),
                until=read(record["until"]) if record.get("until") else None,
                expired=record.get("expired", False),
            )


def _awaited(task: Task, found: Sequence[Segment]) -> Awaited | None:
    if not task.parked or task.awaiting is None or not task.awaiting.startswith("signal:"):
        return None
    since = found[-1].began_at if found and found[-1].kind == "signal" else task.updated_at
    return Awaited(task.awaiting.removeprefix("signal:"), task.phase, since, task.deadline)


def _signals(task: Task, masker: Masker) -> list[SignalLine]:
    try:
        every = values.decode(task.signals_json)
    except (msgspec.DecodeError, UnicodeError, RecursionError, TypeError):
        return []
    senders = {(entry.at, entry.note): entry.by for entry in shown(task, "history") if entry.what == "signal"}
    lines = [
        SignalLine(
            name=each["name"],
            id=each["id"],
            at=read(each["at"]),
            taken_at=read(each["taken_at"]) if each.get("taken_at") else None,
            payload=masker.value(each.get("payload")),
            by=senders.get((each["at"], each["name"]), ""),
        )
        for each in every
        if isinstance(each, dict) and {"name", "id", "at"} <= each.keys()
    ]
    return sorted(lines, key=lambda line: line.at, reverse=True)


def _links(results: Mapping[str, Any]) -> Iterator[Link]:
    """Yield the URLs and paths in the results, at most _MOST_LINKS."""
    count = 0
    waiting: list[tuple[str, Any]] = [(str(name), value) for name, value in reversed(list(results.items()))]
    while waiting and count < _MOST_LINKS:
        where, value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += [(f"{where}.{name}", each) for name, each in reversed(list(value.items()))]
        elif isinstance(value, list):
            waiting += [(f"{where}.{number}", each) for number, each in reversed(list(enumerate(value)))]
        elif isinstance(value, str) and len(value) <= _LONGEST_LINK:
            kind: Literal["url", "path"] | None = (
                "url" if _URL.fullmatch(value) else "path" if _PATH.fullmatch(value) else None
            )
            if kind is not None:
                count += 1
                yield Link(where, kind, value)
