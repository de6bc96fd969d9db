"""Schedules in the store: when each last fired, when it fires next, and whether someone paused it."""

from datetime import datetime
from typing import Any

import msgspec

from onerow.core.schedule import Cron
from onerow.core.times import spell
from onerow.engine.control.definitions import Pause
from onerow.ports import Note, Store

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


def fresh_mark(now: datetime) -> Mark:
    """The mark of a schedule that is seen for the first time: nothing before now is made up for."""
    return Mark(spell(now))
