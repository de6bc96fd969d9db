"""Unreadable rows: find what is wrong with them and keep the other rows working.

A program that writes to the table without onerow can leave a row that no rule accepts: an invalid time, a number out
of range, JSON of the wrong shape, text that is not UTF-8. Checking each row would slow down every task, so a row is
examined only after an operation on it has failed. A row with a problem is then quarantined: its task fails with class
`corrupt`.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar, get_type_hints

import msgspec

from onerow.core import history, steps, values
from onerow.core.durations import parse_duration
from onerow.core.errors import CorruptRow, IllegalMove
from onerow.core.history import Entry
from onerow.core.status import FAILED, PROCESSING, Status
from onerow.core.task import COLUMN, DEFAULTS, FIELDS, JSON_FIELDS, Task
from onerow.core.times import FAR, since_epoch, spell, to_millis

T = TypeVar("T")
Row = TypeVar("Row")

MOST_WRITES = 2**60
"""The largest valid `version` and `token`: half of what the stores accept, so that no increment can overflow."""
MOST_COUNT = 1_000_000_000
"""The largest valid value of every other count."""

_KIND = {field: kind for field, kind in get_type_hints(Task).items() if field in FIELDS}
_LARGE = ("version", "token", "elapsed_time")
NUMBERS = {
    field: MOST_WRITES if field in _LARGE else MOST_COUNT for field, kind in _KIND.items() if kind in (int, int | None)
}
"""The fields that are numbers, with the largest value of each."""
_NAMES = {str: "text", int: "a whole number", bool: "true or false", datetime: "a time with a zone", Status: "a status"}
LEASE_FIELDS = ("leased_by", "leased_until")
"""The fields that every processing task has."""
_LONGEST_ORIGINAL = 10_000
_TRIES = 5

_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
_decode_signals = msgspec.json.Decoder(list[dict[str, Any]]).decode
_DECODERS: dict[str, Callable[[str], Any]] = {
    "payload_json": values.decode,
    "results_json": _decode_object,
    "steps_json": steps.decode,
    "signals_json": _decode_signals,
    "progress_json": values.decode,
    "metadata_json": _decode_object,
    "logs_json": history.entries,
}


class UnreadableRows(CorruptRow):
    """Raised by a store that can't decode some rows into tasks."""

    def __init__(self, ids: Sequence[Any]) -> None:
        self.ids = ids
        some = ", ".join(map(str, ids[:3]))
        super().__init__(
            f"{len(ids)} rows can't be read ({some})", fix="run: onerow doctor", task_id=str(ids[0]) if ids else ""
        )


def decoded(rows: Sequence[Row], decode: Callable[[Row], T], id_of: Callable[[Row], Any]) -> list[T]:
    """Decode the rows; raise UnreadableRows with the ids of the rows that can't be decoded."""
    try:
        return [decode(row) for row in rows]
    except Exception:
        raise UnreadableRows([id_of(row) for row in rows if not _can(decode, row)]) from None


def set_apart(
    rows: Sequence[Row], decode: Callable[[Row], Task], id_of: Callable[[Row], Any]
) -> tuple[list[Task], list[Any]]:
    """Return the tasks of claimed rows, and the ids of the rows that can't be decoded."""
    try:
        return [decode(row) for row in rows], []
    except Exception:
        good = [row for row in rows if _can(decode, row)]
        return [decode(row) for row in good], [id_of(row) for row in rows if row not in good]


def _can(decode: Callable[[Row], object], row: Row) -> bool:
    try:
        decode(row)
    except Exception:
        return False
    return True


def without_unreadable(read: Callable[[], T], set_aside: Callable[[Sequence[Any]], int]) -> T:
    """Return the result of `read`; call `set_aside` for the rows that it can't decode, and read again."""
    failed = 0
    while True:
        try:
            return read()
        except UnreadableRows as error:
            failed = 0 if set_aside(error.ids) else failed + 1
            if failed == _TRIES:  # no process could set them aside; raise instead of retrying for ever
                raise


def as_far_as_readable(found: Sequence[Any], read: Callable[[str, Any], Any]) -> Task:
    """Build a task from a row's values in the order of FIELDS; keep the raw value where `read` raises."""
    row = dict(zip(FIELDS, found, strict=True))
    for field, value in row.items():
        with suppress(Exception):
            row[field] = read(field, value)
    return Task(**row)


def problems(task: Task) -> dict[str, str]:
    """Map each unreadable field of a row to the reason; empty for every task that the rules have written."""
    found = {field: why for field in FIELDS if (why := _problem(field, getattr(task, field)))}
    if task.unique_for is not None and "unique_for" not in found and task.unique_for != "forever":
        try:
            parse_duration(task.unique_for)
        except Exception:
            found["unique_for"] = f"{task.unique_for!r} is not a duration"
    if task.status is PROCESSING:
        found |= {field: "a processing task needs a lease" for field in LEASE_FIELDS if getattr(task, field) is None}
    return found


def _problem(field: str, value: Any) -> str:
    if field in JSON_FIELDS:
        return _json_problem(field, value)
    kind = _KIND[field]
    plain: Any = next(each for each in (str, bool, int, datetime, Status) if kind in (each, each | None))
    if value is None and kind != plain:
        return ""
    if type(value) is not plain or (isinstance(value, datetime) and value.tzinfo is None):
        return f"{_cut(value)} is not {_NAMES[plain]}"
    if field == "priority" and not -100 <= value <= 100:
        return f"{value} is not between -100 and 100"
    if field in NUMBERS and not -MOST_COUNT <= value <= NUMBERS[field]:
        return f"{value} is beyond what is counted to"
    return ""


def _json_problem(field: str, value: Any) -> str:
    if type(value) is not str:
        return f"{_cut(value)} is not JSON text"
    try:
        _DECODERS[field](value)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return f"{_cut(value)} can't be read: {error}"
    return ""


def quarantine(task: Task, now: datetime, *, by: str = "") -> Task:
    """Fail an unreadable task with class `corrupt`, unless it has ended; its JSON columns are left unchanged.

    Bytes in a JSON column are replaced by text, so that every program can read the row; the history keeps the original.
    """
    found = problems(task)
    if not found:
        raise IllegalMove(f"task {task.task_id} can be read", task_id=str(task.task_id), status=task.status)
    ended = "status" not in found and task.ended
    error = f"this row can't be read: {'; '.join(f'{COLUMN[field]}: {why}' for field, why in found.items())}"
    given = {field: getattr(task, field) for field in found}
    changes = {field: _stand_in(field, value, now) for field, value in given.items() if field not in JSON_FIELDS}
    bytes_in_json = {field: value for field, value in given.items() if field in JSON_FIELDS and type(value) is bytes}
    changes |= {field: _json_text(field, value) for field, value in bytes_in_json.items()}
    originals = bytes_in_json | ({"logs_json": task.logs_json} if "logs_json" in found else {})
    note = "\n".join(_text(value)[:_LONGEST_ORIGINAL] for value in originals.values())
    logs = "[]" if "logs_json" in found else task.logs_json
    phase = changes.get("phase", task.phase)
    entry = Entry(at=spell(now), what="quarantined", phase=phase, by=by, error=error, error_class="corrupt", note=note)
    changes |= {"error": error[:2_000], "error_class": "corrupt", "logs_json": history.append(logs, entry)}
    changes["updated_at"] = now
    if "version" not in found:
        changes["version"] = task.version + 1
    changes |= dict.fromkeys(("leased_by", "leased_until", "slot", "key_slot", "awaiting"))
    if task.status is PROCESSING and "token" not in found:
        changes["token"] = task.token + 1  # the current holder loses its lease
    if not ended:
        changes |= {"status": FAILED, "completed_at": now, "purged_at": None}
        changes |= _released(task, found, now)
    elif "completed_at" in found or task.completed_at is None:
        changes["completed_at"] = now
    return msgspec.structs.replace(task, **changes)


def _released(task: Task, found: dict[str, str], now: datetime) -> dict[str, Any]:
    """Return the changes that release the unique key of an ending task, or keep it for `unique_for`."""
    if task.held_key is None or task.unique_for is None or "unique_for" in found or "held_key" in found:
        return {"held_key": None, "held_until": None}
    span = None if task.unique_for == "forever" else parse_duration(task.unique_for)
    return {"held_until": FAR if span is None else to_millis(now + span)}


def _stand_in(field: str, value: Any, now: datetime) -> Any:
    if field in ("version", "token"):
        return since_epoch(now) + 1  # higher than any count of writes, and far below MOST_WRITES
    if field in DEFAULTS:
        return DEFAULTS[field]
    return now if _KIND[field] is datetime else _text(value)


def _json_text(field: str, value: bytes) -> str:
    text = value.decode(errors="replace")
    return str(DEFAULTS.get(field, "null")) if _json_problem(field, text) else text


def _text(value: Any) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def applied(rule: Callable[[Task], T], task: Task, now: datetime, *, by: str = "") -> T | Task:
    """Apply the rule to the task; quarantine the task if the rule fails because the row is unreadable."""
    try:
        return rule(task)
    except IllegalMove:
        raise
    except Exception:
        if not problems(task):
            raise
        return quarantine(task, now, by=by)


def must_be_readable(task: Task) -> None:
    """Raise IllegalMove for a quarantined task whose row has not been repaired."""
    if task.error_class == "corrupt" and (found := problems(task)):
        columns = "; ".join(f"{COLUMN[field]}: {why}" for field, why in found.items())
        raise IllegalMove(
            f"task {task.task_id} can't be read yet ({columns})",
            fix="correct the row first",
            task_id=task.task_id,
            status=task.status,
        )


def shown(task: Task, name: str) -> Any:
    """Return a property of a task for display: the raw text if the column is unreadable; for history, an empty list."""
    try:
        return getattr(task, name)
    except (msgspec.DecodeError, UnicodeError, RecursionError, TypeError):
        return [] if name == "history" else getattr(task, f"{name}_json")


def _cut(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:119] + "…"
