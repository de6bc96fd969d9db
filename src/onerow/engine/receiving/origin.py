"""Which inbox and message a task comes from, as its row tells: in its metadata, and in the notes of its replays."""

import re
from datetime import datetime

from msgspec.structs import replace

from onerow.core import history
from onerow.core.addition import Addition
from onerow.core.messages import ORIGIN, Message, derived_id, id_of_addition
from onerow.core.task import Task
from onerow.core.times import read, spell

MESSAGE = "message"
"""Key in the metadata of a task whose id was given by its message: that message."""
_NOTE = re.compile(r"message (?P<id>.*?)(?: sent (?P<sent_at>\S+Z))?", re.DOTALL)


def identified(addition: Addition, inbox: str, message: Message, number: int) -> Addition:
    """Give an addition the id that each delivery of its message yields; note its inbox, and the message of a given id."""
    origin = {ORIGIN: inbox}
    if addition.task_id not in (None, derived_id(message.message_id)):
        origin[MESSAGE] = note_of(message)
    task_id = id_of_addition(addition, message, number)
    return replace(addition, task_id=task_id, metadata={**(addition.metadata or {}), **origin})


def note_of(message: Message) -> str:
    """Return a text that names a message and when it was sent."""
    return f"message {message.message_id}" + ("" if message.sent_at is None else f" sent {spell(message.sent_at)}")


def is_replayed(task: Task, message: Message) -> bool:
    """Whether a delivery of this message has replayed the task."""
    return any(entry.what == "replay" and entry.note == note_of(message) for entry in history.entries(task.logs_json))


def last_start(task: Task) -> datetime:
    """Return when the task was added or last replayed or retried: when the message was sent that asked for it, if any.

    Two files of a folder are compared by the folder's clock, which may differ from the store's.
    """
    added = _sent_at(str(task.metadata.get(MESSAGE, ""))) or task.created_at
    again = [
        _sent_at(entry.note) or entry.when
        for entry in history.entries(task.logs_json)
        if entry.what in ("replay", "retry")
    ]
    return max([added, *again])


def _sent_at(note: str) -> datetime | None:
    found = _NOTE.fullmatch(note)
    return None if found is None or found["sent_at"] is None else read(found["sent_at"])
