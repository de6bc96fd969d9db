"""Notes: small versioned records in the store that operators write and workers share. Every write compares and swaps."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from onerow.core.errors import LostRace
from onerow.ports import Note, Store

_TRIES = 100


def find(store: Store, kind: str, name: str) -> Note | None:
    """Return one note, if it exists."""
    return next((note for note in store.notes(kind, since=name, before=f"{name}\x01") if note.name == name), None)


def swap(store: Store, note: Note) -> bool:
    """Write a note if the stored version is still `note.version` (0: none stored); return whether it was written."""
    return store.write_notes([note])[0]


def update(
    store: Store, kind: str, name: str, change: Callable[[Note | None], Any], known: Note | None = None
) -> Note | None:
    """Write what `change` returns for the stored note; read it again and retry while others write. Raises LostRace.

    change: gets the stored note and returns the new body; None leaves the note as it is, and `update` returns None.
    known: the note as last read, so that it is read only if it has changed.
    """
    note = known or find(store, kind, name)
    for _ in range(_TRIES):
        body = change(note)
        if body is None:
            return None
        new = Note(kind, name, body, 0 if note is None else note.version)
        if swap(store, new):
            return replace(new, version=new.version + 1)
        note = find(store, kind, name)
    raise LostRace(f"the {kind} {name!r} was changed by others at each of {_TRIES} tries; nothing was written")


def put(store: Store, note: Note) -> Note:
    """Write a note whatever is stored; `note.version` is a guess that saves reading it. Raises LostRace."""
    written = update(store, note.kind, note.name, lambda stored: note.body, note)
    assert written is not None
    return written
