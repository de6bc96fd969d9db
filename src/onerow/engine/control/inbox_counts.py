"""Counts of received messages by (minute, inbox, worker), stored as notes and summed when read."""

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from onerow.engine.control import notes
from onerow.engine.control.stats import KEPT_FOR, minute_of
from onerow.ports import Note, Store

INBOX = "inbox"
"""Kind of the notes."""


class InboxCounts(msgspec.Struct):
    """What happened to the messages of an inbox in a period.

    added: new rows. found: the row existed already, added by another message or program. duplicate: delivered again
    after its row was stored. rejected: set aside with a reason. released: to be delivered again later.
    refused: requests with a missing, wrong or old signature; they are not received.
    lag: milliseconds from sending to the stored row, the longest of the period.
    """

    received: int = 0
    added: int = 0
    found: int = 0
    duplicate: int = 0
    rejected: int = 0
    released: int = 0
    refused: int = 0
    lag: int = 0

    def add(self, other: "InboxCounts") -> None:
        """Add the counts of another period or worker."""
        self.received += other.received
        self.added += other.added
        self.found += other.found
        self.duplicate += other.duplicate
        self.rejected += other.rejected
        self.released += other.released
        self.refused += other.refused
        self.lag = max(self.lag, other.lag)


class InboxState(msgspec.Struct, frozen=True, omit_defaults=True):
    """An inbox as one worker sees it; part of the worker's registry entry. error: why it can't be reached now."""

    name: str
    error: str = ""


def write_counts(store: Store, inbox: str, worker: str, fresh: InboxCounts, now: datetime) -> None:
    """Add counts to the notes of this minute; drop notes that are too old."""

    def add(stored: Note | None) -> object:
        total = InboxCounts() if stored is None else msgspec.convert(stored.body, InboxCounts, strict=False)
        total.add(fresh)
        return msgspec.to_builtins(total)

    notes.update(store, INBOX, f"{minute_of(now)}/{worker}/{inbox}", add)


def drop_old_counts(store: Store, now: datetime) -> None:
    """Drop the counts that are older than a day."""
    if old := store.notes(INBOX, before=minute_of(now - timedelta(minutes=KEPT_FOR))):
        store.drop_notes(INBOX, [note.name for note in old])


def sum_counts(found: Iterable[Note]) -> dict[str, InboxCounts]:
    """Sum the notes of all workers and minutes by inbox."""
    sums: dict[str, InboxCounts] = {}
    for note in found:
        _, _, inbox = note.name.split("/", 2)
        sums.setdefault(inbox, InboxCounts()).add(msgspec.convert(note.body, InboxCounts, strict=False))
    return sums
