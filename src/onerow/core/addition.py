"""A task to add: validates the caller's values and builds the new row."""

import string
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypedDict

import msgspec

from onerow.core import rules, values
from onerow.core.durations import Duration, parse_duration, spell_duration
from onerow.core.errors import BadInput
from onerow.core.plan import Plan
from onerow.core.task import DEFAULTS, Task
from onerow.core.times import FAR, parse_moment, since_epoch, to_millis


class ChildOptions(TypedDict, total=False):
    """Options of `ctx.spawn`: how to add each child."""

    title: str | None
    """By default made from the pipeline's title."""
    run_at: datetime | str | None
    """Earliest start: a time, or '+10m' from now."""
    delay: Duration | None
    """The same, from now on by the store's clock ('10m')."""
    priority: int
    """-100…100, lower first; by default 0."""
    unique: str | None
    """No second open task with this key (per pipeline and user)."""
    unique_for: Duration | None
    """How long the key is held after the task has ended ('7d', 'forever')."""
    limit_key: str
    """Group for per_key limits."""
    max_retries: int | None
    """Replaces the retry budget of every phase."""
    metadata: dict[str, Any] | None


class AddManyOptions(ChildOptions, total=False):
    """Options of `add_many`: how to add all the tasks."""

    user_id: str
    """The owner, for example a tenant; by default ''."""


class AddOptions(AddManyOptions, total=False):
    """Options of `add` and `add_new`."""

    task_id: str | None
    """The id, else a new one. If a task has it, that task is returned."""


class Addition(msgspec.Struct, frozen=True):
    """One task to add, with all arguments of `add`."""

    payload: Any = None
    task_id: str | None = None
    user_id: str = ""
    title: str | None = None
    run_at: datetime | str | None = None
    priority: int = 0
    unique: str | None = None
    unique_for: Duration | None = None
    limit_key: str = ""
    max_retries: int | None = None
    metadata: dict[str, Any] | None = None
    delay: Duration | None = None


_NEW = Task(**DEFAULTS, task_id="", phase="", created_at=FAR, run_at=FAR, updated_at=FAR)


def new_task(
    plan: Plan,
    given: Addition,
    payload: str,
    new_id: str,
    now: datetime,
    user: str | None,
    parent_id: str | None = None,
) -> Task:
    """Build the new row; raise BadInput with the name of an invalid field."""
    user_id = given.user_id if user is None else user
    if user is not None and given.user_id not in ("", user):
        raise BadInput(f"this queue adds for user {user!r} only, not for {given.user_id!r}", field="user_id")
    requested = None if given.run_at is None else parse_moment(given.run_at, now, "run_at")
    if given.delay is not None:
        if requested is not None:
            raise BadInput("run_at and delay both set the earliest start", fix="give one of them", field="delay")
        requested = to_millis(now + parse_duration(given.delay, "delay"))
    for phase in plan.timed:
        rules.due_time(phase, values.decode(payload), now)  # reject an invalid time now, not when the phase is entered
    entered = rules.entering(plan.first, now, payload)
    run_at, awaiting = entered["run_at"], entered["awaiting"]
    if requested is not None and awaiting is None:
        run_at = max(run_at, requested)
    changes: dict[str, Any] = {
        "task_id": new_id,
        "pipeline": plan.name,
        "phase": plan.first.name,
        "title": _title(plan, given.title, payload),
        "created_at": now,
        "updated_at": now,
        "run_at": run_at,
        "awaiting": awaiting,
        "priority": rules.check_priority(given.priority),
        "max_retries": plan.first.retry.max_retries,
        "payload_json": payload,
    }
    # Fields that are seldom given keep the defaults of _NEW, which makes adding faster.
    if given.task_id is not None:
        # A caller's id may be used again after its row was purged. Token and version start at the current time, above
        # those of the old row, so that a worker that still holds the old row can't write to the new one.
        changes |= {"task_id": check_task_id(given.task_id), "token": (start := since_epoch(now)), "version": start + 1}
    if requested is not None:
        changes["scheduled_time"] = requested
    elif plan.first.kind == "wait_until":
        changes["scheduled_time"] = run_at
    if given.max_retries is not None:
        changes |= {"max_retries": _retries(given.max_retries), "own_retries": True}
    if parent_id is not None:
        changes["parent_id"] = parent_id
    if given.unique is not None:
        changes["unique_key"] = changes["held_key"] = _key(given.unique)
    if given.unique_for is not None:
        changes["unique_for"] = _lifetime(given)
    if given.metadata is not None:
        changes["metadata_json"] = encode_metadata(given.metadata)
    if user_id != "":
        changes["user_id"] = values.check_text(user_id, "user_id", 200)
    if given.limit_key != "":
        changes["limit_key"] = values.check_text(given.limit_key, "limit_key", 200)
    return msgspec.structs.replace(_NEW, **changes)


def check_list(payloads: object) -> None:
    """Raise BadInput for one payload in place of a list of them: the keys of a dict would be added one by one."""
    if isinstance(payloads, str | bytes | Mapping) or not isinstance(payloads, Iterable):
        raise BadInput(
            f"payloads must be a list, not {type(payloads).__name__}",
            fix="put one payload into a list: [payload]",
            field="payloads",
        )


def check_task_id(task_id: str) -> str:
    """Return the id of a task; raise BadInput if it is not allowed."""
    values.check_text(task_id, "task_id", 200)
    if not task_id or not task_id.isprintable() or task_id != task_id.strip() or "/" in task_id:
        raise BadInput(f"task_id {task_id!r} must be printable text without '/' or outer blanks", field="task_id")
    return task_id


def _key(key: str) -> str:
    values.check_text(key, "unique", 500)
    if not key:
        raise BadInput("unique must not be empty", fix="leave it out", field="unique")
    return key


def _lifetime(given: Addition) -> str:
    if given.unique is None:
        raise BadInput("unique_for needs a unique key", field="unique_for")
    if given.unique_for == "forever":
        return "forever"
    assert given.unique_for is not None
    return spell_duration(parse_duration(given.unique_for, "unique_for"))


def _retries(count: int) -> int:
    if type(count) is not int or not 0 <= count <= 1000:
        raise BadInput(f"max_retries must be a whole number from 0 to 1000, not {count!r}", field="max_retries")
    return count


def encode_metadata(metadata: dict[str, Any]) -> str:
    """Return the user's metadata as the text of a JSON object."""
    if not isinstance(metadata, dict):
        raise BadInput(f"metadata must be a dict, not {type(metadata).__name__}", field="metadata")
    return values.encode(metadata, "metadata")


def with_carried(tasks: list[Task], carried: Mapping[str, str]) -> list[Task]:
    """Return new tasks with the trace context of their adder; one that the caller gave in the metadata wins."""
    if not carried:
        return tasks
    return [
        msgspec.structs.replace(
            task, metadata_json=encode_metadata({**carried, **task.metadata} if task.metadata_json != "{}" else dict(carried))
        )
        for task in tasks
    ]  # fmt: skip


_MAX_TITLE = 500


def _title(plan: Plan, given: str | None, payload: str) -> str:
    if given is not None:
        return values.check_text(given, "title", _MAX_TITLE)
    if not plan.title:
        return ""
    fields = values.decode(payload)
    # Only plain field names are supported, so that a template can't access attributes.
    parts = []
    for text, field, _, _ in string.Formatter().parse(plan.title):
        parts.append(text)
        if field:
            parts.append(str(fields.get(field, "")) if isinstance(fields, dict) else "")
    return "".join(parts)[:_MAX_TITLE]
