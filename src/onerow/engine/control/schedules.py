"""Schedules in the store: when each fired last, when it fires next, and whether it is paused."""

from datetime import datetime
from typing import Any

import msgspec

from onerow.core.schedule import Cron
from onerow.core.times import spell
from onerow.engine.control import notes
from onerow.engine.control.definitions import Pause
from onerow.ports import Note, Store

PROGRESS = "cron"


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """Progress of a schedule: a note, written by compare-and-swap."""

    last: str  # all nominal times up to this one are processed
    task_id: str = ""  # the task of the last firing
    firing: str = ""  # the nominal time whose task is being added
    error: str = ""  # why the last try added no task


class Scheduled(msgspec.Struct, frozen=True):
    """A schedule and its current state."""

    pipeline: str
    cron: Cron  # the schedule itself
    last: datetime | None  # the last time that it added a task for
    task_id: str  # the task that it added last
    next: datetime  # the next time
    pause: Pause | None  # its pause, if it has one
    error: str  # why the last try added no task


def progress_name(pipeline: str, cron: Cron) -> str:
    return f"{pipeline}/{cron.name}"


def pause_name(pipeline: str, cron: str) -> str:
    return f"{pipeline}/cron:{cron}"


def read_progress(body: Any) -> Progress:
    return msgspec.convert(body, Progress)


def written(store: Store, name: str, progress: Progress, version: int) -> bool:
    """Write the note by compare-and-swap; return whether it was written."""
    return notes.swap(store, Note(PROGRESS, name, msgspec.to_builtins(progress), version))


def new_progress(now: datetime) -> Progress:
    """Return the state of a new schedule: times before now are not caught up."""
    return Progress(spell(now))
