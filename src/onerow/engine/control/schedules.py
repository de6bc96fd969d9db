"""Schedules in the store: when each fired last, when it fires next, and whether it is paused."""

from datetime import datetime
from typing import Any

import msgspec

from onerow.core.schedule import Cron
from onerow.core.times import spell
from onerow.engine.control import notes
from onerow.engine.control.definitions import Pause
from onerow.ports import Note, Store

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
    return notes.swap(store, Note(MARK, name, msgspec.to_builtins(mark), version))


def fresh_mark(now: datetime) -> Mark:
    """Return the state of a new schedule: times before now are not caught up."""
    return Mark(spell(now))
