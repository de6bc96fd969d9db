"""The record, in the source store, that its queue was moved: the source refuses new tasks."""

from datetime import datetime
from time import monotonic

import msgspec

from onerow.core.errors import QueueRelocated
from onerow.core.times import read, spell
from onerow.engine.control import definitions, notes
from onerow.ports import Note, Store

MOVED_BY = "onerow move"
"""The name under which a move pauses the pipelines of its source."""
RELOCATION = "relocation"
"""Kind of the notes. In the source the note is named TO, in the target by the id of the move."""
CHECK_EVERY = 2.0
"""Seconds for which a process that adds tasks may rely on its last check."""
TO = "to"


class Relocation(msgspec.Struct, frozen=True):
    """The move of a queue to another store."""

    id: str  # of the move; the target has a note with this name
    to: str  # URL of the target, passwords masked
    ended_at: str = ""  # when the copy was complete, by the source's clock; '': not yet

    @property
    def ended(self) -> datetime | None:
        return read(self.ended_at) if self.ended_at else None


def relocation_of(store: Store) -> Relocation | None:
    """Return where the queue of this store was moved; None: it was not moved."""
    note = notes.find(store, RELOCATION, TO)
    return None if note is None else msgspec.convert(note.body, Relocation)


def refuse_adds(source: Store, relocation: Relocation) -> None:
    """Make the store refuse new tasks; processes that add tasks notice within CHECK_EVERY seconds."""
    notes.put(source, Note(RELOCATION, TO, msgspec.to_builtins(relocation)))


def end(source: Store, relocation: Relocation, at: datetime) -> None:
    """Record that the target has everything that was in the source at this time."""
    refuse_adds(source, msgspec.structs.replace(relocation, ended_at=spell(at)))


def undo(source: Store) -> bool:
    """Accept new tasks again and remove the pauses of the move; return whether the queue had been moved."""
    paused = [note.name for note in source.notes(definitions.PAUSE) if note.body.get("by") == MOVED_BY]
    source.drop_notes(definitions.PAUSE, paused)
    return source.drop_notes(RELOCATION, [TO]) > 0


def arrived(target: Store, relocation: Relocation) -> bool:
    """Whether this store is the target of the move."""
    return notes.find(target, RELOCATION, relocation.id) is not None


def announce(target: Store, relocation: Relocation, source: str) -> None:
    """Write the id of the move to the target."""
    notes.put(target, Note(RELOCATION, relocation.id, {"from": source}))


def check_not_relocated(store: Store) -> None:
    """Raise QueueRelocated if the queue was moved to another store."""
    found = relocation_of(store)
    if found is not None:
        raise QueueRelocated(
            f"the queue of {store.url} was moved to {found.to} and takes no new tasks here",
            fix="add them at the new store",
        )


class RelocationCheck:
    """Checks before tasks are added that the queue was not moved; reads the store at most once per CHECK_EVERY."""

    def __init__(self) -> None:
        self._due_at = 0.0

    def __call__(self, store: Store) -> None:
        now = monotonic()
        if now >= self._due_at:
            check_not_relocated(store)
            self._due_at = now + CHECK_EVERY
