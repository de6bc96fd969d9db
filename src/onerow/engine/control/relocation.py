"""The record that a queue was moved to another store, kept in the store that it left: new tasks are refused there."""

from datetime import datetime
from time import monotonic

import msgspec

from onerow.core.errors import QueueRelocated
from onerow.core.times import read, spell
from onerow.engine.control import definitions
from onerow.ports import Note, Store

MOVED_BY = "onerow move"
"""Who paused the pipelines of a queue that was moved."""
RELOCATION = "relocation"
"""The kind of the note. In the store that was left it is named TO, in the new one by the id of the move."""
CHECK_EVERY = 2.0
"""Seconds for which a process that adds tasks may rely on having seen no such note."""
TO = "to"


class Relocation(msgspec.Struct, frozen=True):
    """Where a queue went."""

    id: str  # of the move; the new store has a note of this name
    to: str  # the new store's URL, passwords masked
    ended_at: str = ""  # when everything had been carried over, by the clock of the store that was left; '': not yet

    @property
    def ended(self) -> datetime | None:
        return read(self.ended_at) if self.ended_at else None


def relocation_of(store: Store) -> Relocation | None:
    """Where the queue of this store went; None: it is here."""
    note = next((note for note in store.notes(RELOCATION) if note.name == TO), None)
    return None if note is None else msgspec.convert(note.body, Relocation)


def refuse_adds(source: Store, relocation: Relocation) -> None:
    """From now on the store takes no new tasks; a process that adds learns of it within CHECK_EVERY seconds."""
    definitions.overwrite(source, RELOCATION, TO, msgspec.to_builtins(relocation))


def end(source: Store, relocation: Relocation, at: datetime) -> None:
    """Everything that was in the source at this time is in the new store."""
    refuse_adds(source, msgspec.structs.replace(relocation, ended_at=spell(at)))


def undo(source: Store) -> bool:
    """The store takes new tasks again, and the pauses that the move set are lifted; whether it was marked."""
    paused = [note.name for note in source.notes(definitions.PAUSE) if note.body.get("by") == MOVED_BY]
    source.drop_notes(definitions.PAUSE, paused)
    return source.drop_notes(RELOCATION, [TO]) > 0


def arrived(target: Store, relocation: Relocation) -> bool:
    """Whether this is the store that the queue went to."""
    return any(note.name == relocation.id for note in target.notes(RELOCATION))


def announce(target: Store, relocation: Relocation, source: str) -> None:
    """Let the new store know the move by its id."""
    target.write_notes([Note(RELOCATION, relocation.id, {"from": source})])


def check_not_relocated(store: Store) -> None:
    """Raise QueueRelocated where the queue has gone to another store."""
    found = relocation_of(store)
    if found is not None:
        raise QueueRelocated(
            f"the queue of {store.url} was moved to {found.to} and takes no new tasks here; add them at the new store"
        )


class RelocationCheck:
    """Checks for those who add tasks that the queue is still here; reads the store at most once in CHECK_EVERY."""

    def __init__(self) -> None:
        self._due_at = 0.0

    def __call__(self, store: Store) -> None:
        now = monotonic()
        if now >= self._due_at:
            check_not_relocated(store)
            self._due_at = now + CHECK_EVERY
