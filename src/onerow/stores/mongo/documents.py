"""Documents ↔ tasks: one key per column, `_id` for the task id, times as dates, JSON as documents."""

from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

from bson.int64 import Int64
from msgspec.structs import astuple

from onerow.core.task import COLUMN, FIELDS, JSON_FIELDS, Task
from onerow.stores.mongo.values import to_bson, to_json
from onerow.stores.shared.task_rows import task_reader

Document = dict[str, Any]
Stamp = str | dict[str, datetime]
"""The time of a write as an aggregation expression: the server's clock, or a test's."""
SERVER_NOW: Stamp = "$$NOW"

KEY: dict[str, str] = COLUMN | {"task_id": "_id"}
"""Field of a Task → key in its document."""
CLAIM_ID = "claimed_in"
"""Key of the claim id: a claim that updates many documents at once finds those it got by it."""

_JSON_SET = frozenset(JSON_FIELDS)

_keys = tuple(KEY[field] for field in FIELDS)
_json_keys = tuple(KEY[field] for field in JSON_FIELDS)
_of_all_keys = itemgetter(*_keys)
ID = itemgetter("_id")

# Defaults for keys that are missing: null values are not stored, and documents written by hand may lack others.
_DEFAULTS: Document = dict.fromkeys(_keys) | {
    "pipeline": "", "user_id": "", "title": "", "priority": 0, "cancel_requested": False, "attempt": 0,
    "retry_count": 0, "max_retries": 3, "own_retries": False, "retry_base": 0, "crash_count": 0, "rescue_count": 0,
    "generation": 0, "token": 0, "limit_key": "", "results": {}, "steps": {}, "signals": [], "metadata": {}, "logs": [],
}  # fmt: skip


def document_of(task: Task) -> Document:
    """Return the task as a document without null values, which would cost a third of the insert."""
    document: Document = {key: value for key, value in zip(_keys, astuple(task), strict=True) if value is not None}
    document["status"] = task.status.value
    for key in _json_keys:
        document[key] = to_bson(document[key])
    return document


def stored(task: Task, field: str) -> Any:
    """Return the stored form of one field."""
    value = getattr(task, field)
    if field in _JSON_SET:
        return to_bson(value)
    return value.value if field == "status" else value


def values_of(document: Document) -> tuple[Any, ...]:
    """Return the values of a document in the order of FIELDS."""
    return _of_all_keys(_DEFAULTS | document)  # type: ignore[no-any-return]


def task_of(document: Document) -> Task:
    """Return the task in a document; raise TypeError if a value that queries and writes rely on has another type."""
    task = _task(_of_all_keys(_DEFAULTS | document))
    names = (task.task_id, task.pipeline, task.phase, task.user_id, task.limit_key)
    numbers: tuple[Any, ...] = (task.version, task.token)
    if {*map(type, names)} != {str} or not {*map(type, numbers)} <= {int, float}:
        raise TypeError("a value has another type than its column")
    return task


def moment_of(value: datetime) -> datetime:
    """Add the UTC zone to a date from the driver."""
    return value.replace(tzinfo=UTC)


def _integer(value: Any) -> Any:
    return int(value) if type(value) is Int64 else value  # numbers above 32 bits come back as the driver's Int64


_task = task_reader(
    time=moment_of,
    convert=dict.fromkeys(JSON_FIELDS, to_json) | dict.fromkeys(("elapsed_time", "token", "version"), _integer),
)
