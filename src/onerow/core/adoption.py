"""Rows of a user's table as tasks: what a row becomes, and whether the view shows it as it was."""

import json
import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal, NoReturn

from onerow.core import values
from onerow.core.addition import check_task_id
from onerow.core.durations import parse_duration
from onerow.core.errors import BadInput
from onerow.core.history import Entry, append
from onerow.core.plan import Plan
from onerow.core.rules import check_priority
from onerow.core.status import ENDS, FAILED, PROCESSING, WAITING, Status
from onerow.core.table_mapping import Column, TableMapping
from onerow.core.task import DEFAULTS, Task
from onerow.core.times import FAR, since_epoch, spell, to_millis

Processing = Literal["stop", "requeue", "fail"]
"""What becomes of rows that the old system is processing: stop the adoption, run them again, or fail them."""
INTERRUPTED = "was processing when the table was adopted"

_TIMES = ("time", "datetime", "unix_ms", "unix")
_ALWAYS_SET = (
    "created_at",
    "updated_at",
    "run_at",
    "priority",
    "attempt",
    "retry_count",
    "max_retries",
    "completed_at",
)
_NOT_TAKEN = ("logs", "progress")
_FITTING: dict[str, tuple[str, ...]] = {
    "time": _TIMES,
    "integer": ("number", "bigint", "integer"),
    "json": ("jsonb", "json"),
}
"""Type of a field → types of columns that hold its values."""
_DROPPED = ("leased_by", "leased_until")  # no adopted task is leased


def check_plan(mapping: TableMapping, plan: Plan) -> None:
    """Raise BadInput if the mapping names a phase that the pipeline does not have."""
    named = [target.partition("/")[2] for target in mapping.statuses.values()]
    named += [
        column.path[1] for column in mapping.columns if column.path[0] in ("results", "steps") and len(column.path) > 1
    ]
    for phase in filter(None, (*named, mapping.phase)):
        plan.phase(phase)


def misfits(mapping: TableMapping) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a field or type of a column, and what to do; the mapping has the types of the table."""
    for column in mapping.columns:
        name, fits = column.name, _FITTING.get(column.own_type)
        if column.field in _NOT_TAKEN:
            yield (
                f"the column {name} is mapped to {column.field}, which is written by onerow only",
                f'map it to a member: {name} = "metadata.{name}"',
            )
        elif len(column.path) == 1 and fits and column.kind not in fits:
            field, member = column.field, f'{name} = "metadata.{name}"'
            yield (
                f"the column {name} has the type {column.kind}, which can't be {field}",
                f'map it to a member: {name} = "{field}.{name}"'
                if column.own_type == "json"
                else f'say what it holds, {name} = "{field}:{fits[-1]}", or map it to a member: {member}',
            )


def task_of(mapping: TableMapping, row: Mapping[str, Any], now: datetime, processing: Processing) -> Task | None:
    """Return the task that a row becomes; None if the row is processing and the adoption has to wait for it.

    Raises BadInput that names the row and the column.
    """
    key = row[mapping.key.name]
    try:
        return _task_of(mapping, row, now, processing)
    except BadInput as error:
        raise BadInput(f"row {key} of {mapping.table}: {error}", fix=error.fix, field=error.field) from None


def _task_of(mapping: TableMapping, row: Mapping[str, Any], now: datetime, processing: Processing) -> Task | None:
    given: dict[str, Any] = {}
    objects: dict[str, Any] = {"payload": None, "metadata": {}, "results": {}}
    for column in mapping.columns:
        field, *members = column.path
        if field == "steps" and row[column.name] is not None:
            raise BadInput(
                "steps can't be adopted",
                fix=f'map the column {column.name} to "metadata.{column.name}:boolean"',
                field=column.name,
            )
        value = _read(column, row[column.name])
        if value is None:
            continue
        if members:
            _put(objects, field, members, value)
        elif field in objects:
            objects[field] = value
        else:
            given[field] = value
    status, phase = _status_of(mapping, row)
    phase = given.pop("phase", "") or phase or mapping.phase
    if not phase:
        raise BadInput("no phase is known", fix='add phase = "…" to the mapping', field="phase")
    given.pop("status", None)
    if status is PROCESSING and processing == "stop":
        return None
    interrupted = status is PROCESSING
    if interrupted:
        status = WAITING if processing == "requeue" else FAILED
    for field in _DROPPED:
        given.pop(field, None)
    created = given.setdefault("created_at", now)
    given.setdefault("updated_at", now)
    given.setdefault("run_at", given.get("scheduled_time", created))
    given["completed_at"] = given.get("completed_at") or given["updated_at"] if status in ENDS else None
    if interrupted and status is FAILED:
        given |= {"error": INTERRUPTED, "error_class": "unknown"}
    start = since_epoch(now)
    entry = Entry(
        at=spell(now), what="adopted", phase=phase, by="onerow adopt", note=INTERRUPTED if interrupted else ""
    )
    task_id = check_task_id(str(given.pop("task_id")))
    if "max_retries" in given:
        given["own_retries"] = True
    _check_numbers(given)
    return Task(
        **(
            DEFAULTS
            | given
            | _keys(mapping, row, status, given["completed_at"], now)
            | {"task_id": task_id, "pipeline": mapping.pipeline, "phase": phase, "status": status}
            # An id may be used again: see core.addition.
            | {"token": start, "version": start + 1, "logs_json": append("[]", entry)}
            | {f"{field}_json": values.encode(value, field) for field, value in objects.items()}
        )
    )


def _check_numbers(given: dict[str, Any]) -> None:
    check_priority(given.get("priority", 0))
    for field in ("attempt", "retry_count", "max_retries", "elapsed_time"):
        if not 0 <= given.get(field, 0) < 2**31:
            raise BadInput(
                f"{field} is {given[field]}", fix="correct the row, or map the column to metadata.X", field=field
            )
    for field, most in (("user_id", 200), ("limit_key", 200), ("title", 500)):
        values.check_text(given.get(field, ""), field, most)


def _keys(
    mapping: TableMapping, row: Mapping[str, Any], status: Status, ended_at: datetime | None, now: datetime
) -> dict[str, Any]:
    """Return the fields of the unique key: an open task holds it, an ended one for `unique_for`."""
    key = unique_key(mapping, row)
    if key is None:
        return {}
    found: dict[str, Any] = {
        "unique_key": values.check_text(key, "unique", 500),
        "unique_for": mapping.unique_for or None,
    }
    if status not in ENDS:
        return found | {"held_key": key}
    if mapping.unique_for:
        assert ended_at is not None
        until = FAR if mapping.unique_for == "forever" else to_millis(ended_at + parse_duration(mapping.unique_for))
        if until > now:
            found |= {"held_key": key, "held_until": until}
    return found


def unique_key(mapping: TableMapping, row: Mapping[str, Any]) -> str | None:
    """Return the unique key of a row, as the view's INSERT would make it."""
    if not mapping.unique or any(row[name] is None for name in mapping.unique):
        return None
    return ",".join(key_part(mapping, str(row[name])) for name in mapping.unique) or None


def key_part(mapping: TableMapping, text: str) -> str:
    """Return a column's part of the unique key: of several columns, a comma in a value must not look like the separator."""
    return text if len(mapping.unique) == 1 else text.replace("\\", "\\\\").replace(",", "\\,")


def _status_of(mapping: TableMapping, row: Mapping[str, Any]) -> tuple[Status, str]:
    column = mapping.column_of("status")
    if column is None:
        found = next((meant for name, meant in mapping.status_when.items() if row[name] is not None), WAITING)
        return Status(found), ""
    word = row[column.name]
    meaning = mapping.meaning(str(word)) if word is not None else None
    if meaning is None:
        raise BadInput(
            f"the status {word!r} is not in the mapping",
            fix=f'add {word} = "waiting" or another status under [statuses]',
            field="statuses",
        )
    return meaning


def _put(objects: dict[str, Any], field: str, members: list[str], value: Any) -> None:
    inner = objects[field] = objects[field] if objects[field] is not None else {}
    for member in members[:-1]:
        inner = inner.setdefault(member, {})
    inner[members[-1]] = value


def _read(column: Column, value: Any) -> Any:
    """Return a column's value as the task's field holds it."""
    if value is None:
        return None
    found = normal(column, value)
    if len(column.path) == 1 and column.own_type == "integer":
        found = _whole(column, found)
    if len(column.path) > 1 and column.kind in _TIMES:
        return value  # a member of JSON stays as it is written
    if isinstance(found, int | float) and not isinstance(found, bool) and column.kind not in _TIMES:
        found = (found - column.plus) * (-1 if column.negate else 1)
    if len(column.path) == 1 and column.own_type == "text":
        return str(found)
    return found


def normal(column: Column, value: Any) -> Any:
    """Return a column's value in a form in which equal values are equal: times as datetimes to the millisecond.

    Raises BadInput for a value that the column's type can't hold as it is.
    """
    if value is None:
        return None
    try:
        match column.kind:
            case "time" | "datetime":
                moment = datetime.fromisoformat(str(value))
                return to_millis(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
            case "unix":
                return datetime.fromtimestamp(_whole(column, value), UTC)
            case "unix_ms":
                return to_millis(datetime.fromtimestamp(_whole(column, value) / 1000, UTC))
            case "integer" | "bigint":
                return _whole(column, value)
            case "number":
                return _number(column, value)
            case "boolean":
                return _boolean(column, value)
            case "uuid":
                return str(value).lower()
            case "json" | "jsonb":
                _check_exact(column, value)
                return value
    except BadInput:
        raise
    except (ValueError, OverflowError):
        _refuse(
            column,
            f"{value!r} is not of type {column.kind}",
            "correct the row, or give the column another type in the mapping",
        )
    return str(value)


def parse_json(text: str | bytes) -> Any:
    """Decode JSON; a number that float does not hold exactly becomes a Decimal, which `normal` refuses."""
    return json.loads(text, parse_float=_exact)


def _exact(text: str) -> float | Decimal:
    found, exact = float(text), Decimal(text)
    return found if Decimal(repr(found)) == exact else exact


def _whole(column: Column, value: Any) -> int:
    found = int(value)
    if not isinstance(value, str) and found != value:
        _refuse(
            column,
            f"{value} is not a whole number",
            f"correct the row, or map the column as {_spelled(column, 'number')}",
        )
    return found


def _number(column: Column, value: Any) -> float:
    found = float(value)
    same = Decimal(repr(found)) == Decimal(value) if isinstance(value, str) else found == value
    if math.isfinite(found) and not same:
        _refuse_digits(column, value)
    return found


def _boolean(column: Column, value: Any) -> bool:
    word = str(value).lower()
    if word not in ("t", "f", "true", "false", "0", "1"):
        _refuse(
            column,
            f"{value!r} is not true or false",
            f"correct the row, or map the column as {_spelled(column, 'text')}",
        )
    return word in ("t", "true", "1")


def _check_exact(column: Column, value: Any) -> None:
    if isinstance(value, Decimal):
        _refuse_digits(column, value)
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_exact(column, inner)


def _refuse_digits(column: Column, value: Any) -> NoReturn:
    _refuse(
        column,
        f"{value} has more digits than a number of a task holds",
        f"correct the row, or map the column as {_spelled(column, 'text')}",
    )


def _refuse(column: Column, problem: str, fix: str) -> NoReturn:
    raise BadInput(f"column {column.name}: {problem}", fix=fix, field=column.name) from None


def _spelled(column: Column, kind: str) -> str:
    """Return how a mapping gives a column another type."""
    field = column.field if len(column.path) > 1 else f"metadata.{column.name}"
    return f'"{field}:{kind}"'


def differences(
    mapping: TableMapping, row: Mapping[str, Any], task: Task, shown: Mapping[str, Any] | None
) -> list[str]:
    """Return what the view does not show as it was in the row: 'column: old, shown'."""
    if shown is None:
        return [] if task.status in mapping.hidden else ["the row is missing"]
    found = []
    for column in mapping.columns:
        old, now = normal(column, row[column.name]), normal(column, shown[column.name])
        field = column.path[0]
        if field == "status":
            old = next(
                word for status, phase, word in mapping.words if status == task.status and phase in ("", task.phase)
            )
        elif field in _DROPPED or column.when or (task.error == INTERRUPTED and field == "error"):
            continue
        elif field == "completed_at" and not task.ended:
            old = None
        elif old is None and field in _ALWAYS_SET and len(column.path) == 1:
            continue
        elif column.own_type in ("text", "json") and len(column.path) == 1:
            old, now = old or None, now or None
        if old != now:
            found.append(f"{column.name}: {row[column.name]!r}, now {shown[column.name]!r}")
    return found
