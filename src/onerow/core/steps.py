"""Records that a phase keeps across attempts: steps, waits and spawns, as JSON text in the row.

The column `steps` is {phase: {name: record}}. A record has a time and one of: the result of a step; what the task
waits for, with a deadline; that a wait expired; until when a sleep lasts.
"""

from collections.abc import Coroutine
from datetime import datetime
from typing import Any

import msgspec

from onerow.core import values
from onerow.core.errors import BadInput, BadPayload
from onerow.core.status import WAITING
from onerow.core.task import Task
from onerow.core.times import read, spell

MAX_STEPS = 1_000
"""The maximum number of records of one phase."""
RESERVED = ("wait:", "spawn:", "join", "sleep:")
"""Prefixes of onerow's own records; a user's step name may not start with them."""

_NULL = msgspec.Raw(b"null")
_encode = msgspec.json.Encoder().encode


class Record(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The record of one step, wait or spawn."""

    at: str
    result: msgspec.Raw = _NULL
    awaiting: str = ""  # set while a wait is open
    until: str = ""
    expired: bool = False

    @property
    def open(self) -> bool:
        """Whether this is the record of a wait that is not over."""
        return bool(self.awaiting)

    @property
    def value(self) -> Any:
        return values.decode(bytes(self.result).decode())


decode = _decode = msgspec.json.Decoder(dict[str, dict[str, Record]]).decode


def records(task: Task) -> dict[str, Record]:
    """Return the records of the task's phase, by name."""
    return {} if task.steps_json == "{}" else _decode(task.steps_json).get(task.phase, {})


def spawned_since(task: Task) -> datetime | None:
    """Return when the task first spawned children in this generation, or None if it did not."""
    times = [record.at for _, record in _spawns(task.steps_json)]
    return read(min(times)) if times else None


def has_spawned(steps: str) -> bool:
    """Whether there is a record of a spawn, so that children may exist."""
    return bool(_spawns(steps))


def _spawns(steps: str) -> list[tuple[str, Record]]:
    if '"spawn:' not in steps:
        return []
    found = [each for mine in _decode(steps).values() for each in mine.items()]
    return [(name, record) for name, record in found if name.startswith("spawn:")]


def check_name(name: str) -> str:
    """Return the name of a user's step; raise BadInput if it is not allowed."""
    values.check_text(name, "step", 200)
    if not name or name.startswith(RESERVED):
        raise BadInput(f"a step can't be named {name!r}: not empty, and not beginning with {', '.join(RESERVED)}")
    return name


def check_call(name: str, function: object) -> str:
    """Return the name of a step that a handler calls; raise BadInput if it is not allowed, or the function is none."""
    if not callable(function):
        way = (
            "in an async def handler: await"
            if isinstance(function, Coroutine)
            else "give the function and its arguments:"
        )
        raise BadInput(
            f"step {name!r} needs a function, not its result ({type(function).__name__})",
            fix=f"{way} ctx.step({name!r}, function, arguments…)",
            field="step",
        )
    return check_name(name)


def sleeps_until(task: Task) -> datetime | None:
    """Return until when the task sleeps in its handler; None if it does not, or was rescheduled."""
    if task.status is not WAITING or task.awaiting is not None or '"sleep:' not in task.steps_json:
        return None
    until = spell(task.run_at)
    asleep = any(name.startswith("sleep:") and record.until == until for name, record in records(task).items())
    return task.run_at if asleep else None


def expired(task: Task, now: datetime) -> str:
    """Return the steps with the open wait marked as expired, so that the handler raises WaitExpired at that wait."""
    for name, record in records(task).items():
        if record.open:
            return with_record(task, name, Record(at=spell(now), expired=True))
    return task.steps_json


def renamed(task: Task, name: str) -> str:
    """Return the steps with the records of the task's phase under another name."""
    known = {} if task.steps_json == "{}" or name == task.phase else _decode(task.steps_json)
    if task.phase not in known:
        return task.steps_json
    known[name] = known.pop(task.phase)
    return _encode(known).decode()


def without_last_expired(task: Task) -> str:
    """Return the steps without the wait that expired last, so that the next attempt waits again."""
    mine = records(task)
    expired_names = [name for name, record in mine.items() if record.expired]
    return _without(task, [max(expired_names, key=lambda name: mine[name].at)]) if expired_names else task.steps_json


def without_open_waits(task: Task) -> str:
    """Return the steps without open waits, so that their deadlines start over."""
    return _without(task, [name for name, record in records(task).items() if record.open])


def _without(task: Task, names: list[str]) -> str:
    if not names:
        return task.steps_json
    known = _decode(task.steps_json)
    for name in names:
        del known[task.phase][name]
    return _encode({phase: mine for phase, mine in known.items() if mine}).decode()


def with_record(task: Task, name: str, record: Record) -> str:
    """Return the steps with one more record; raise BadPayload if they are too many or too large."""
    known = {} if task.steps_json == "{}" else _decode(task.steps_json)
    mine = known.setdefault(task.phase, {})
    mine[name] = record
    if len(mine) > MAX_STEPS:
        raise BadPayload(f"{task.phase} has more than {MAX_STEPS:,} steps", fix="make children of them", field="step")
    text = _encode(known).decode()
    size = len(text) + len(task.results_json) + len(task.payload_json) + len(task.logs_json) + len(task.metadata_json)
    if size > values.MAX_ROW:
        raise BadPayload(
            f"step {name!r} of {task.phase} would make the row {size:,} characters, at most {values.MAX_ROW:,} are stored",
            fix="store it elsewhere and return a path or key",
            field="step",
        )
    return text
