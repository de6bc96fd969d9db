"""What a file of a folder inbox asks for: one job, or a list of items with one job each."""

from datetime import datetime, tzinfo
from typing import Any

import msgspec

from onerow.core.addition import Addition
from onerow.core.errors import BadInput
from onerow.core.messages import AddTasks, BadMessage, Message, derived_id
from onerow.core.times import parse_time

_MOST_ITEMS = 10_000


def read_job(message: Message, pipeline: str | None, item_field: str, zone: tzinfo | None) -> AddTasks:
    """Read a JSON file: an object is one job, an array is a list of items.

    Of a job's keys, job_id, pipeline, priority, scheduled_at, user_id, unique and force are for the queue; the whole
    object is the payload. A job_id may be a whole number; the task's id is its text. A time without an offset is read in
    `zone`, by default the host's.
    """
    body = msgspec.json.decode(message.body)
    if isinstance(body, list):
        return _items(message, pipeline, [_item(each, item_field) for each in body])
    if not isinstance(body, dict):
        raise BadMessage(f"must be a JSON object or array, not {type(body).__name__}", field="file")
    force = body.get("force", False)
    if not isinstance(force, bool):
        raise BadMessage(f"force must be true or false, not {force!r}", field="force")
    job_id = body.get("job_id")
    job_id = str(job_id) if type(job_id) is int else _text(body, "job_id")
    if job_id == "":
        raise BadMessage("job_id is empty; give the job an id, or leave the key out", field="job_id")
    scheduled_at = _text(body, "scheduled_at")
    priority = body.get("priority")
    addition = Addition(
        body,
        task_id=derived_id(message.message_id) if job_id is None else job_id,
        user_id=_text(body, "user_id") or "",
        title=_text(body, "title"),
        run_at=None if scheduled_at is None else _local_time(scheduled_at, zone),
        priority=0 if priority is None else priority,
        unique=_text(body, "unique"),
    )
    return AddTasks(_pipeline(body.get("pipeline"), pipeline), (addition,), "replay" if force else "reject")


def read_list(message: Message, pipeline: str | None, item_field: str) -> AddTasks:
    """Read a text or m3u file: each line that is not empty and no comment is one item."""
    lines = [line.strip() for line in message.body.removeprefix("\ufeff").splitlines()]
    return _items(message, pipeline, [_item(line, item_field) for line in lines if line and not line.startswith("#")])


def _items(message: Message, pipeline: str | None, payloads: list[Any]) -> AddTasks:
    if not payloads:
        raise BadMessage("the list is empty", field="file")
    if len(payloads) > _MOST_ITEMS:
        raise BadMessage(f"the list has {len(payloads):,} items; at most {_MOST_ITEMS:,} are allowed", field="file")
    name = _pipeline(None, pipeline)
    return AddTasks(name, tuple(Addition(payload) for payload in payloads))


def _item(item: Any, item_field: str) -> Any:
    return {item_field: item} if isinstance(item, str) else item


def _pipeline(given: object, default: str | None) -> str:
    name = default if given is None else given
    if not isinstance(name, str) or not name:
        raise BadMessage("names no pipeline; add the key 'pipeline', or give the inbox one", field="pipeline")
    return name


def _text(body: dict[str, Any], key: str) -> str | None:
    value = body.get(key)
    if value is not None and not isinstance(value, str):
        raise BadMessage(f"{key} must be a text, not {value!r}", field=key)
    return value


def _local_time(text: str, zone: tzinfo | None) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is not None and moment.tzinfo is None:
        moment = moment.astimezone() if zone is None else moment.replace(tzinfo=zone)
    try:
        return parse_time(text if moment is None else moment, "scheduled_at")
    except BadInput as error:
        raise BadMessage(str(error), field="scheduled_at") from None
