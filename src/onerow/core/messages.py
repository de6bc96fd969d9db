"""Messages from inboxes, and what a message asks for. Reading a message is pure: it stores and acknowledges nothing."""

from datetime import datetime
from functools import lru_cache
from typing import Any, Literal
from uuid import NAMESPACE_OID, uuid5

import msgspec

from onerow.core.addition import Addition
from onerow.core.errors import BadInput

ORIGIN = "inbox"
"""Key in the metadata of a task that an inbox has added: the inbox's name."""


class BadMessage(BadInput):
    """A message that can't be read or asks for nothing known; it is set aside with the reason."""


class Message(msgspec.Struct, frozen=True):
    """One message as an inbox delivered it.

    message_id: the same at each delivery of the message. sent_at: when its sender sent it, if the inbox knows.
    deliveries: how often it was delivered, this time included. attributes: headers, group and so on.
    receipt: the inbox's own handle of this delivery.
    """

    message_id: str
    body: str  # the text, usually JSON
    sent_at: datetime | None = None
    deliveries: int = 1
    attributes: dict[str, Any] = {}
    receipt: Any = None


class AddTasks(msgspec.Struct, frozen=True):
    """Add one task or several.

    if_ended: what to do if an earlier message has added a task with the same id, and it has ended: leave it as it is,
    replay it, or set the message aside.
    """

    pipeline: str
    additions: tuple[Addition, ...]  # the tasks; an empty tuple acknowledges the message and adds nothing
    if_ended: Literal["leave", "replay", "reject"] = "leave"


class FindTask(msgspec.Struct, frozen=True):
    """The message names a task that another program has added."""

    task_id: str


class SendSignal(msgspec.Struct, frozen=True):
    """Send a signal to a task."""

    task_id: str
    name: str  # the name of the signal
    payload: Any = None  # its value


class CancelTask(msgspec.Struct, frozen=True):
    """Cancel a task. written_at: a task added or replayed after this time is not meant."""

    task_id: str
    written_at: datetime | None = None


Request = AddTasks | FindTask | SendSignal | CancelTask
"""What a message can ask for."""


def check_request(request: object) -> Request:
    """Return what a reading function has returned; raise BadMessage if it is no request, or one of wrong types."""
    match request:
        case AddTasks(pipeline=str(), additions=tuple() | list() as additions) if all(
            isinstance(addition, Addition) for addition in additions
        ):
            return request
        case SendSignal(task_id=str(), name=str()) | FindTask(task_id=str()) | CancelTask(task_id=str()):
            return request
        case AddTasks() | FindTask() | SendSignal() | CancelTask():
            problem = f"{type(request).__name__} with values of wrong types"
        case _:
            problem = f"{type(request).__name__}, not AddTasks, FindTask, SendSignal or CancelTask"
    raise BadMessage(f"its reading function returned {problem}", field="read")


def decode_object(body: str) -> dict[str, Any]:
    """Return the JSON object in a message's body."""
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise BadMessage(f"not JSON: {error}", field="body") from None
    except RecursionError:
        raise BadMessage("not JSON: nested too deep", field="body") from None
    if not isinstance(found, dict):
        raise BadMessage(f"must be a JSON object, not {type(found).__name__}", field="body")
    return found


class _Terms(msgspec.Struct, forbid_unknown_fields=True):
    """The keys of a message that adds a task: the arguments of `Queue.add` as JSON has them."""

    pipeline: str | None = None
    payload: Any = None
    task_id: str | None = None
    user_id: str = ""
    title: str | None = None
    run_at: str | None = None
    priority: int = 0
    unique: str | None = None
    unique_for: str | float | None = None
    limit_key: str = ""
    max_retries: int | None = None
    metadata: dict[str, Any] | None = None
    delay: str | float | None = None


def read_request(body: dict[str, Any], pipeline: str | None, message_id: str) -> Request:
    """Read onerow's own message format.

    {"task_id": …} names a task. {"pipeline": …, "payload": …, "unique": …, …} adds one; its keys are the arguments of
    `Queue.add`, and "pipeline" may be left out if the inbox has one. {"task_id": …, "signal": …, "payload": …} sends a
    signal, {"task_id": …, "cancel": true} cancels.
    """
    if set(body) == {"task_id"}:
        return FindTask(_text(body, "task_id"))
    if "signal" in body:
        _known(body, {"task_id", "signal", "payload"})
        return SendSignal(_text(body, "task_id"), _text(body, "signal"), body.get("payload"))
    if "cancel" in body:
        _known(body, {"task_id", "cancel"})
        if body["cancel"] is not True:
            raise BadMessage("cancel must be true", field="cancel")
        return CancelTask(_text(body, "task_id"))
    try:
        terms = msgspec.convert(body, _Terms)
    except msgspec.ValidationError as error:
        raise BadMessage(str(error), field="body") from None
    name = pipeline if terms.pipeline is None else terms.pipeline
    if not name:
        raise BadMessage("names no pipeline; add the key 'pipeline', or give the inbox one", field="pipeline")
    given = {key: getattr(terms, key) for key in terms.__struct_fields__ if key != "pipeline"}
    task_id = derived_id(message_id) if terms.task_id is None else _text(body, "task_id")
    return AddTasks(name, (Addition(**given | {"task_id": task_id}),))


def id_of_addition(addition: Addition, message: Message, number: int) -> str:
    """Return the id of the task that a message adds: the given one, or one that each delivery yields."""
    return derived_id(message.message_id, str(number)) if addition.task_id is None else addition.task_id


@lru_cache(maxsize=256)  # asked for twice for each message
def derived_id(*parts: str) -> str:
    """Return a task id that is the same at each delivery of a message."""
    return str(uuid5(NAMESPACE_OID, "\n".join(parts)))


def _known(body: dict[str, Any], keys: set[str] | frozenset[str]) -> None:
    if unknown := sorted(set(body) - keys):
        raise BadMessage(f"unknown key {unknown[0]!r}; known are {', '.join(sorted(keys))}", field=unknown[0])


def _text(body: dict[str, Any], key: str) -> str:
    value = body.get(key)
    if not isinstance(value, str) or not value:
        raise BadMessage(f"{key} must be a text that is not empty", field=key)
    return value
