"""The life of a task as segments: where it waited, ran, backed off; without gaps and without overlaps."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec
from msgspec.structs import replace

from onerow.core.corruption import shown
from onerow.core.errors import BadInput
from onerow.core.failure import failure
from onerow.core.history import Entry
from onerow.core.plan import Plan
from onerow.core.retry import Retry
from onerow.core.status import PROCESSING
from onerow.core.steps import sleeps_until
from onerow.core.task import Task
from onerow.core.times import parse_time, read
from onerow.engine.control.definitions import Pause

Kind = Literal[
    "waiting", "scheduled", "running", "back-off", "sleeping", "signal", "children", "paused", "ended", "unknown"
]
"""waiting: due and in line. ended: between an end and a retry or replay. unknown: the history of it was dropped."""

_SHORTEST_FOLDED = timedelta(minutes=1)
_GAP_KINDS: dict[str, Kind] = {"wait_until": "scheduled", "wait_for": "signal", "wait_children": "children"}
_ENDS = ("completed", "cancelled", "quarantined", "fail")
_MARKS = ("set_priority", "dropped")  # entries that end no segment


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A period of a task's life; the next segment begins where this one ends."""

    kind: Kind
    phase: str
    began_at: datetime
    ended_at: datetime  # of an open segment: now
    open: bool = False  # it still lasts
    attempt: int = 0  # of a running segment
    outcome: str = ""  # of a running segment that ended: the `what` of its history entry
    error_class: str = ""
    awaiting: str = ""  # of a signal segment: the signal's name
    foldable: bool = False  # idle, and long compared with the time that the task ran

    @property
    def ms(self) -> int:
        return int((self.ended_at - self.began_at) / timedelta(milliseconds=1))


def segments(task: Task, plan: Plan | None, now: datetime, pause: Pause | None = None) -> list[Segment]:
    """Return the segments from the addition of a task to its end or to `now`, oldest first.

    pause: the pause in force of the task's phase.
    """
    return _Walk(task, plan, now, pause).whole()


class _Walk:
    """One pass over the history: each entry closes the gap before it and says how the next one begins."""

    def __init__(self, task: Task, plan: Plan | None, now: datetime, pause: Pause | None) -> None:
        self._task, self._plan, self._pause = task, plan, pause
        self._entries: list[Entry] = [each for each in shown(task, "history") if isinstance(each, Entry)]
        self._end = max(task.created_at, task.completed_at or now if task.ended else now)
        self._now = now
        self._found: list[Segment] = []
        self._cursor = task.created_at
        self._phase = self._entries[0].phase if self._entries and self._entries[0].phase else task.phase
        self._kind: Kind = "waiting"
        self._awaiting = ""
        self._due: datetime | None = None  # when the present gap becomes 'waiting', if known
        self._spent = 0  # failed attempts since the phase was entered

    def whole(self) -> list[Segment]:
        self._enter(self._phase)
        self._due_at_first()
        for number, entry in enumerate(self._entries):
            self._step(number, entry)
        self._last()
        return _folded(self._found)

    def _due_at_first(self) -> None:
        requested = self._task.scheduled_time
        if requested is not None and self._kind == "waiting" and not (self._plan is not None and self._plan.timed):
            self._kind, self._due = "scheduled", requested

    def _step(self, number: int, entry: Entry) -> None:
        at = self._clamped(entry.when)
        if entry.what == "dropped":
            self._kind, self._due = "unknown", None
            self._gap(at)
            return
        if entry.ms is not None:
            began_at = min(self._clamped(_before(at, entry.ms)), at)
            self._gap(began_at, entry.phase)
            self._run(began_at, at, entry)
            self._after_attempt(number, entry)
        elif not self._inside_attempt(number, at) and entry.what not in _MARKS:
            self._after_event(number, entry, at)

    def _after_attempt(self, number: int, entry: Entry) -> None:
        self._due, self._awaiting = None, ""
        if self._ended_after(number):
            self._kind = "ended"
        elif entry.what == "failed":
            self._back_off(entry)
        elif entry.what == "parked":
            self._await(entry.note)
        elif entry.what in ("sleeping", "snoozed"):
            self._kind, self._due = "sleeping", _time_in(entry.note.removeprefix("until "))
        elif entry.what in ("advanced", "skipped"):
            self._enter(self._next_phase(number))
        else:  # rescued, handed back: it waits again at the same phase
            self._kind = "waiting"

    def _after_event(self, number: int, entry: Entry, at: datetime) -> None:
        if entry.what == "signal" and (self._kind != "signal" or entry.note != self._awaiting):
            return  # it waited for something else
        self._gap(at)
        self._due, self._awaiting = None, ""
        if self._ended_after(number):
            self._kind = "ended"
        elif entry.what in ("retry", "replay"):
            self._enter(entry.phase)
        elif entry.what == "reschedule":
            self._kind, self._due = "scheduled", _time_in(entry.note)
        elif entry.what in ("passed", "finish") or (entry.what == "expired" and not self._has_code(entry.phase)):
            self._enter(self._next_phase(number))
        else:  # a signal that was awaited, an expired wait of a handler
            self._kind = "waiting"

    def _last(self) -> None:
        """Close the walk with what the row says about its present state."""
        task = self._task
        if task.ended:
            self._gap(self._end)
            return
        if task.status is PROCESSING:
            began_at = self._clamped(task.started_at or self._end)
            self._gap(began_at, task.phase)
            self._found.append(
                Segment(
                    kind="running", phase=task.phase, began_at=began_at, ended_at=self._end, open=True,
                    attempt=task.attempt,
                )
            )  # fmt: skip
            return
        self._phase = task.phase
        if task.awaiting is not None:
            self._await(task.awaiting)
            self._due = None
        elif sleeps_until(task) is not None:
            self._kind, self._due = "sleeping", task.run_at
        elif self._kind in ("back-off", "sleeping", "scheduled") or task.run_at > self._end:
            self._kind = self._kind if self._kind in ("back-off", "sleeping") else "scheduled"
            self._due = task.run_at
        else:
            self._kind = "waiting"
        if self._pause is not None and self._kind == "waiting":
            self._gap(self._clamped(read(self._pause.at)))
            self._kind = "paused"
        before = len(self._found)
        self._gap(self._end)
        if len(self._found) > before:
            self._found[-1] = replace(self._found[-1], open=True)

    # ── parts ──

    def _gap(self, until: datetime, phase: str = "") -> None:
        """Append the time from the cursor to `until`, split where the task became due."""
        self._phase = phase or self._phase
        due = self._due
        if due is not None and self._cursor < due < until:
            self._append(self._kind, due)
            self._kind = "waiting"
        elif due is not None and due <= self._cursor:
            self._kind = "waiting"
        self._append(self._kind, until)

    def _append(self, kind: Kind, until: datetime) -> None:
        if until <= self._cursor:
            return
        awaiting = self._awaiting if kind == "signal" else ""
        last = self._found[-1] if self._found else None
        if last is not None and (last.kind, last.phase, last.awaiting) == (kind, self._phase, awaiting):
            self._found[-1] = replace(last, ended_at=until)
        else:
            self._found.append(
                Segment(kind=kind, phase=self._phase, began_at=self._cursor, ended_at=until, awaiting=awaiting)
            )
        self._cursor = until

    def _run(self, began_at: datetime, at: datetime, entry: Entry) -> None:
        self._found.append(
            Segment(
                kind="running", phase=entry.phase, began_at=began_at, ended_at=at, attempt=entry.attempt,
                outcome=entry.what, error_class=entry.error_class,
            )
        )  # fmt: skip
        self._cursor = at

    def _clamped(self, moment: datetime) -> datetime:
        return min(max(moment, self._cursor), self._end)

    def _inside_attempt(self, number: int, at: datetime) -> bool:
        """Whether the next attempt that the history or the row knows had already begun at this time."""
        for entry in self._entries[number + 1 :]:
            if entry.ms is not None:
                return _before(entry.when, entry.ms) <= at
        return self._task.status is PROCESSING and (self._task.started_at or self._now) <= at

    def _ended_after(self, number: int) -> bool:
        entry = self._entries[number]
        if number + 1 == len(self._entries):
            return self._task.ended
        following = self._entries[number + 1].what
        if following in ("retry", "replay") or entry.what in _ENDS:
            return True
        return entry.what == "failed" and following in ("cancel", "finish") and not self._retry(entry.phase).allows(entry.error_class)  # fmt: skip

    def _back_off(self, entry: Entry) -> None:
        if entry.error_class == "crash":
            self._kind = "waiting"
            return
        self._kind = "back-off"
        if entry.error_class != "limit":  # the handler may have named another delay
            delay = self._retry(entry.phase).after(failure("", entry.error_class), self._spent, self._task.task_id)
            self._due = None if delay is None else entry.when + delay
        self._spent += 1

    def _await(self, awaiting: str) -> None:
        name = awaiting.removeprefix("signal:")
        self._kind, self._awaiting = ("children", "") if name == "children" else ("signal", name)

    def _enter(self, phase: str) -> None:
        self._phase, self._spent, self._due = phase, 0, None
        known = self._plan.phase(phase) if self._plan is not None and self._plan.knows(phase) else None
        self._kind = "waiting" if known is None else _GAP_KINDS.get(known.kind, "waiting")
        self._awaiting = known.signal if known is not None and self._kind == "signal" else ""

    def _next_phase(self, number: int) -> str:
        following = [each.phase for each in self._entries[number + 1 :] if each.phase and each.what != "replay"]
        return following[0] if following else self._task.phase

    def _has_code(self, phase: str) -> bool:
        return self._plan is None or not self._plan.knows(phase) or self._plan.phase(phase).has_code

    def _retry(self, phase: str) -> Retry:
        return self._plan.phase(phase).retry if self._plan is not None and self._plan.knows(phase) else Retry()


def _before(at: datetime, ms: int) -> datetime:
    try:
        return at - timedelta(milliseconds=ms)
    except OverflowError:
        return datetime.min.replace(tzinfo=at.tzinfo)


def _time_in(note: str) -> datetime | None:
    try:
        return parse_time(note, "note")
    except BadInput:
        return None


def _folded(found: Sequence[Segment]) -> list[Segment]:
    """Mark idle segments that are long compared with the time that the task ran."""
    ran = sum((each.ended_at - each.began_at for each in found if each.kind == "running"), timedelta(0))
    longest = max(_SHORTEST_FOLDED, ran)
    return [
        replace(each, foldable=True) if each.kind != "running" and each.ended_at - each.began_at > longest else each
        for each in found
    ]


class PhaseSpan(msgspec.Struct, frozen=True, kw_only=True):
    """One phase on the timeline: the sum of its segments, and what is usual."""

    phase: str
    state: Literal["done", "here", "not-reached"]
    attempts: int = 0
    run_ms: int = 0
    idle_ms: int = 0  # waiting, back-off, …; without the time after an end
    share: float = 0.0  # of the task's life, run and idle
    p50_ms: int | None = None  # of one attempt of any task, over the last hours


def spans(
    task: Task, phases: Sequence[str], found: Sequence[Segment], p50: dict[str, int | None]
) -> Iterator[PhaseSpan]:
    """Yield the phases in order, and those that only the history knows."""
    life = max(1, sum(each.ms for each in found))
    reached = {each.phase for each in found}
    for phase in (*phases, *sorted(reached - set(phases))):
        mine = [each for each in found if each.phase == phase and each.kind != "ended"]
        run = sum(each.ms for each in mine if each.kind == "running")
        idle = sum(each.ms for each in mine if each.kind != "running")
        yield PhaseSpan(
            phase=phase,
            state="here" if phase == task.phase else "done" if phase in reached else "not-reached",
            attempts=sum(each.kind == "running" for each in mine),
            run_ms=run,
            idle_ms=idle,
            share=(run + idle) / life,
            p50_ms=p50.get(phase),
        )
