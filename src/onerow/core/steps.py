"""What a phase remembers of itself across attempts: results of steps, waits and spawns, as JSON text in the row.

The column `steps` is {phase: {name: record}}. A record says when it was made, and one of: what the step returned;
what the task waits for, and until when; that nothing came in time.
"""

from datetime import datetime
from typing import Any

import msgspec

from onerow.core import values
from onerow.core.errors import BadInput, BadPayload
from onerow.core.task import Task
from onerow.core.times import read, spell

MAX_STEPS = 1_000
"""Steps that one phase may remember."""
RESERVED = ("wait:", "spawn:", "join")
"""How the names of what we remember ourselves begin; a user's step may not."""

_NULL = msgspec.Raw(b"null")
_encode = msgspec.json.Encoder().encode


class Record(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One remembered thing."""

    at: str
    result: msgspec.Raw = _NULL
    awaiting: str = ""  # of a wait that is open
    until: str = ""
    expired: bool = False

    @property
    def open(self) -> bool:
        """Whether the task still waits for it, as far as the row knows."""
        return bool(self.awaiting)

    @property
    def value(self) -> Any:
        return values.decode(bytes(self.result).decode())


decode = _decode = msgspec.json.Decoder(dict[str, dict[str, Record]]).decode


def records(task: Task) -> dict[str, Record]:
    """What the task's phase remembers, by name."""
    return {} if task.steps_json == "{}" else _decode(task.steps_json).get(task.phase, {})


def spawned_since(task: Task) -> datetime | None:
    """Since when the task has spawned children in this generation; None: it hasn't."""
    times = [record.at for _, record in _spawns(task.steps_json)]
    return read(min(times)) if times else None


def has_spawned(steps: str) -> bool:
    """Whether any spawn is remembered, so that there may be children."""
    return bool(_spawns(steps))


def _spawns(steps: str) -> list[tuple[str, Record]]:
    if '"spawn:' not in steps:
        return []
    found = [each for mine in _decode(steps).values() for each in mine.items()]
    return [(name, record) for name, record in found if name.startswith("spawn:")]


def check_name(name: str) -> str:
    """A name for a step of the user's own."""
    values.check_text(name, "step", 200)
    if not name or name.startswith(RESERVED):
        raise BadInput(f"a step can't be named {name!r}: not empty, and not beginning with {', '.join(RESERVED)}")
    return name


def expired(task: Task, now: datetime) -> str:
    """The steps of a task whose open wait is over, so that the handler is told where it waited."""
    for name, record in records(task).items():
        if record.open:
            return with_record(task, name, Record(at=spell(now), expired=True))
    return task.steps_json


def without_last_expired(task: Task) -> str:
    """The steps without the wait that expired last, so that the next attempt waits again."""
    mine = records(task)
    expired_names = [name for name, record in mine.items() if record.expired]
    return _without(task, [max(expired_names, key=lambda name: mine[name].at)]) if expired_names else task.steps_json


def without_open_waits(task: Task) -> str:
    """The steps without waits that are still open, so that their deadlines count anew."""
    return _without(task, [name for name, record in records(task).items() if record.open])


def _without(task: Task, names: list[str]) -> str:
    if not names:
        return task.steps_json
    known = _decode(task.steps_json)
    for name in names:
        del known[task.phase][name]
    return _encode({phase: mine for phase, mine in known.items() if mine}).decode()


def with_record(task: Task, name: str, record: Record) -> str:
    """The steps with one record more; raises BadPayload when there are too many or they are too large."""
    known = {} if task.steps_json == "{}" else _decode(task.steps_json)
    mine = known.setdefault(task.phase, {})
    mine[name] = record
    if len(mine) > MAX_STEPS:
        raise BadPayload(f"{task.phase} has more than {MAX_STEPS:,} steps; make children of them", field="step")
    text = _encode(known).decode()
    size = len(text) + len(task.results_json) + len(task.payload_json) + len(task.logs_json) + len(task.metadata_json)
    if size > values.MAX_ROW:
        raise BadPayload(
            f"step {name!r} of {task.phase} would make the row {size:,} bytes; at most {values.MAX_ROW:,}. "
            f"Store it elsewhere and return a path or key",
            field="step",
        )
    return text
