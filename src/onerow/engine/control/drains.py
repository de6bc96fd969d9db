"""Requests that a worker drains: notes that an operator writes and the worker reads."""

from onerow.core.errors import BadInput, UnknownName
from onerow.core.suggest import did_you_mean
from onerow.core.times import spell
from onerow.engine.control import notes
from onerow.engine.control.definitions import PULLER, REGISTERED_FOR, WORKER
from onerow.ports import Note, Store

DRAIN = "drain"


def ask_to_drain(store: Store, worker: str, by: str) -> None:
    """Ask a live worker to drain; raise UnknownName if there is no such worker."""
    since = store.now() - REGISTERED_FOR
    alive = {
        note.name: note.body.get("kind")
        for note in store.notes(WORKER)
        if note.updated_at is not None and note.updated_at >= since
    }
    if worker not in alive:
        fix = did_you_mean(worker, alive, "no worker is running; to list them: onerow workers")
        raise UnknownName(f"no live worker {worker!r}", fix=fix, field="worker")
    if alive[worker] == PULLER:
        raise BadInput(f"{worker} is a puller", fix="stop its own program", field="worker")
    notes.put(store, Note(DRAIN, worker, {"by": by, "at": spell(store.now())}))


def is_asked_to_drain(store: Store, worker: str) -> bool:
    """Whether an operator asked the worker to drain."""
    return notes.find(store, DRAIN, worker) is not None


def forget(store: Store, worker: str) -> None:
    """Remove the request of a worker that has ended."""
    store.drop_notes(DRAIN, [worker])
