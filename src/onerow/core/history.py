"""A task's history: one entry per attempt and per operation, bounded, stored as JSON text in the row."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from onerow.core import times
from onerow.core.errors import CorruptRow

MAX_HISTORY = 60_000
"""The maximum length of a history in characters; beyond it the oldest entries are replaced by one 'dropped' entry."""


class Entry(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One event in a task's history."""

    at: str  # when, as text
    what: str  # what happened: advanced, retried, failed, rescued, cancel, …
    phase: str = ""  # the phase at that time
    attempt: int = 0
    ms: int | None = None  # how long the attempt took, in milliseconds
    by: str = ""  # who did it: a worker or a person
    error: str = ""  # the error of a failed attempt
    error_class: str = ""  # its class
    exception: str = ""  # the type of the exception
    where: str = ""  # the line of your code that raised it
    note: str = ""  # a remark, for example the reason of a cancel

    @property
    def when(self) -> datetime:
        """`at` as a datetime."""
        return times.read(self.at)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Entry]).decode


def entries(text: str) -> list[Entry]:
    """Decode the history, oldest entry first."""
    return _decode(text)


def added(before: Sequence[Entry], after: Sequence[Entry]) -> Sequence[Entry]:
    """Return the entries that were appended to a history, as far as they were not dropped since."""
    count = _appended(after) - _appended(before)
    return after[-count:] if count > 0 else ()


def _appended(kept: Sequence[Entry]) -> int:
    """Return how many entries were ever appended, with those that were dropped."""
    if kept and kept[0].what == "dropped":
        return int(kept[0].note) + len(kept) - 1
    return len(kept)


def cancel_reason(text: str) -> str:
    """Return why a task was cancelled: the note of its handler or of the user who asked for it; '' if there is none."""
    try:
        found = [entry.note for entry in entries(text) if entry.what in ("cancel", "cancelled") and entry.note]
    except msgspec.DecodeError:
        return ""
    return found[-1] if found else ""


def append(text: str, entry: Entry) -> str:
    """Return the history with one more entry; concatenates text, so that old entries need not be decoded."""
    added = _encode(entry).decode()
    if text == "[]":
        return f"[{added}]"
    if text[-1:] != "]":
        raise CorruptRow(f"logs is not a list of entries: {text[:80]!r}")
    if len(text) + len(added) < MAX_HISTORY:
        return f"{text[:-1]},{added}]"
    return _trim([*entries(text), entry])


def _trim(kept: list[Entry]) -> str:
    gone = 0
    if kept and kept[0].what == "dropped":
        gone = int(kept[0].note)
        kept = kept[1:]
    half = len(kept) // 2
    gone += half
    kept = [Entry(at=kept[half].at, what="dropped", note=str(gone)), *kept[half:]]
    return _encode(kept).decode()
