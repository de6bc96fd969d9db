"""Schedules in the store: when each fired last, when it fires next, and whether it is paused."""

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
    """Progress of a schedule: a note, written by compare-and-swap."""

    last: str  # all nominal times up to this one are processed
    task_id: str = ""  # the task of the last firing
    firing: str = ""  # the nominal time whose task is being added


class Scheduled(msgspec.Struct, frozen=True):
    """A schedule and its current state."""

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
    """Write the note by compare-and-swap; return whether it was written."""
    return store.write_notes([Note(MARK, name, msgspec.to_builtins(mark), version)])[0]


class Crons:
    """Lists, pauses and resumes schedules (`queue.crons`)."""

    def __init__(self, queue: "Queue") -> None:
        self._queue = queue

    def all(self) -> list[Scheduled]:
        """Return every published schedule with its last and next time."""
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
        """Pause a schedule; times that pass during the pause are not caught up."""
        definitions.set_pause(self._queue.store, pipeline, f"cron:{self._known(pipeline, name).name}", by, reason)

    def resume(self, pipeline: str, name: str) -> bool:
        """Remove a pause; return whether there was one."""
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
    """Return the state of a new schedule: times before now are not caught up."""
    return Mark(spell(now))
