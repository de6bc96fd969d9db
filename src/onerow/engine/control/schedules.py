"""Schedules in the store: when each last fired, when it fires next, and whether someone paused it."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from onerow.core import schedule
from onerow.core.errors import UnknownName
from onerow.core.schedule import Cron
from onerow.core.times import read, spell
from onerow.engine.control import definitions
from onerow.engine.control.definitions import PAUSE, Pause
from onerow.ports import Note, Store

if TYPE_CHECKING:
    from onerow.engine.queue.queue import Queue

MARK = "cron"


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a schedule was kept; a note, written by compare-and-swap."""

    last: str  # the nominal time up to which everything was decided
    task_id: str = ""  # the task that fired last
    firing: str = ""  # the nominal time whose task is being added


class Scheduled(msgspec.Struct, frozen=True):
    """A schedule as it stands."""

    pipeline: str
    cron: Cron
    last: datetime | None
    task_id: str
    next: datetime
    pause: Pause | None


def mark_name(pipeline: str, cron: Cron) -> str:
    return f"{pipeline}/{cron.name}"


def pause_name(pipeline: str, cron: str) -> str:
    return f"{pipeline}/cron:{cron}"


def read_mark(body: Any) -> Mark:
    return msgspec.convert(body, Mark)


def written(store: Store, name: str, mark: Mark, version: int) -> bool:
    """Whether the mark was written, because nobody else did meanwhile."""
    return store.write_notes([Note(MARK, name, msgspec.to_builtins(mark), version)])[0]


class Crons:
    """What `queue.crons` offers."""

    def __init__(self, queue: "Queue") -> None:
        self._queue = queue

    def all(self) -> list[Scheduled]:
        """Every schedule that was published, with its last and next time."""
        store = self._queue.store
        now = store.now()
        marks = {note.name: read_mark(note.body) for note in store.notes(MARK)}
        pauses = definitions.load_controls(store).pauses
        found = []
        plans = {name: p.plan for name, p in self._queue.pipelines.items()} | definitions.load_plans(store)
        for plan in plans.values():
            for cron in plan.crons:
                mark = marks.get(mark_name(plan.name, cron))
                found.append(
                    Scheduled(
                        plan.name,
                        cron,
                        read(mark.last) if mark and mark.task_id else None,
                        mark.task_id if mark else "",
                        schedule.next_time(cron, now),
                        pauses.get((plan.name, f"cron:{cron.name}")),
                    )
                )
        return found

    def pause(self, pipeline: str, name: str, *, by: str = "", reason: str = "") -> None:
        """A schedule fires no more until it is resumed; the times that pass meanwhile are not made up for."""
        definitions.set_pause(self._queue.store, pipeline, f"cron:{self._known(pipeline, name).name}", by, reason)

    def resume(self, pipeline: str, name: str) -> bool:
        """Undo a pause; whether there was one."""
        cron = self._known(pipeline, name)
        return self._queue.store.drop_notes(PAUSE, [pause_name(pipeline, cron.name)]) > 0

    def _known(self, pipeline: str, name: str) -> Cron:
        crons = self._queue.plan(pipeline).crons
        for cron in crons:
            if cron.name == name:
                return cron
        there = ", ".join(repr(cron.name) for cron in crons) or "none"
        raise UnknownName(f"pipeline {pipeline!r} has no schedule {name!r} ({there})", field="cron")


def fresh_mark(now: datetime) -> Mark:
    """The mark of a schedule that is seen for the first time: nothing before now is made up for."""
    return Mark(spell(now))
