"""Signals in the row: those that no wait has taken yet, and the ids of those that were taken.

The column `signals` is a list. A pending signal has a payload. Of a taken signal only the id remains, so that a
second delivery of the same signal is recognised.
"""

from datetime import datetime
from typing import Any

import msgspec

from onerow.core import values
from onerow.core.times import spell

MAX_SIGNALS = 100
"""The maximum number of pending signals."""
MAX_TAKEN = 100
"""The number of taken signals whose ids are kept; older ones are removed."""

_encode = msgspec.json.Encoder().encode


def kept(text: str) -> list[dict[str, Any]]:
    """Return the pending signals, oldest first."""
    return [] if text == "[]" else [each for each in values.decode(text) if "payload" in each]


def knows(text: str, signal_id: str) -> bool:
    """Whether a signal with this id is pending or among the last MAX_TAKEN that were taken."""
    return text != "[]" and any(each["id"] == signal_id for each in values.decode(text))


def has(text: str, name: str) -> bool:
    """Whether a signal of this name is pending."""
    return any(each["name"] == name for each in kept(text))


def keep(text: str, name: str, payload: str, signal_id: str, now: datetime) -> str:
    """Return the column with one more pending signal."""
    new = {"id": signal_id, "name": name, "at": spell(now), "payload": values.decode(payload)}
    return _encode([*values.decode(text), new]).decode()


def take(text: str, name: str, now: datetime) -> tuple[str, str] | None:
    """Take the first signal of this name: return its payload and the new column, or None if there is none."""
    mine = next((each for each in kept(text) if each["name"] == name), None)
    if mine is None:
        return None
    taken = {"id": mine["id"], "name": name, "at": mine["at"], "taken_at": spell(now)}
    every = values.decode(text)
    before = [each for each in every if "payload" not in each]
    rest = [each for each in kept(text) if each["id"] != mine["id"]]
    return _encode(mine["payload"]).decode(), _encode([*before, taken][-MAX_TAKEN:] + rest).decode()
