"""Signals in the row: those that nothing has waited for yet, and the ids of those that were taken.

The column `signals` is a list. What is kept has a payload; of what was taken only the id is left, so that the same
signal, delivered again, isn't taken for another.
"""

from datetime import datetime
from typing import Any

import msgspec

from onerow.core import values
from onerow.core.times import spell

MAX_SIGNALS = 100
"""So many may wait to be taken."""
MAX_TAKEN = 100
"""So many that were taken are remembered; the oldest are forgotten."""

_encode = msgspec.json.Encoder().encode


def kept(text: str) -> list[dict[str, Any]]:
    """The signals that nothing has taken, oldest first."""
    return [] if text == "[]" else [each for each in values.decode(text) if "payload" in each]


def knows(text: str, signal_id: str) -> bool:
    """Whether a signal of that id is kept, or was taken not long ago."""
    return text != "[]" and any(each["id"] == signal_id for each in values.decode(text))


def has(text: str, name: str) -> bool:
    """Whether there is a signal to be taken."""
    return any(each["name"] == name for each in kept(text))


def keep(text: str, name: str, payload: str, signal_id: str, now: datetime) -> str:
    """The column with one more."""
    new = {"id": signal_id, "name": name, "at": spell(now), "payload": values.decode(payload)}
    return _encode([*values.decode(text), new]).decode()


def take(text: str, name: str, now: datetime) -> tuple[str, str] | None:
    """(the payload of the first of that name, the column that remembers only its id); None when there is none."""
    mine = next((each for each in kept(text) if each["name"] == name), None)
    if mine is None:
        return None
    taken = {"id": mine["id"], "name": name, "at": mine["at"], "taken_at": spell(now)}
    every = values.decode(text)
    before = [each for each in every if "payload" not in each]
    rest = [each for each in kept(text) if each["id"] != mine["id"]]
    return _encode(mine["payload"]).decode(), _encode([*before, taken][-MAX_TAKEN:] + rest).decode()
