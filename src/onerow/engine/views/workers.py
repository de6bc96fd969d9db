"""Who works, and what each holds."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from onerow.core.corruption import shown
from onerow.core.task import Task
from onerow.engine.events.hooks import GuardState
from onerow.ports import Note

SILENT_AFTER = timedelta(seconds=15)
"""A worker signs the roll every five seconds; who missed it twice is taken for gone."""


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """A task in a worker's hands."""

    task_id: str
    title: str
    pipeline: str
    phase: str
    since: datetime | None
    leased_until: datetime | None
    cancel_requested: bool
    progress: Any


class WorkerLine(msgspec.Struct, frozen=True, kw_only=True):
    """One worker process on the roll, or one that holds leases without being on it."""

    name: str
    host: str = ""
    pid: int = 0
    started_at: datetime | None = None
    seen_at: datetime | None = None
    alive: bool = False
    draining: bool = False
    concurrency: int = 0
    phases: list[tuple[str, str]] = []
    holds: list[Holding] = []
    hooks: list[GuardState] = []  # hooks that exceed their time limit or lost events


def roll(notes: Iterable[Note], held: Iterable[Task], now: datetime) -> list[WorkerLine]:
    """The workers, with what each holds."""
    holds: dict[str, list[Holding]] = {}
    for task in held:
        holds.setdefault(task.leased_by or "", []).append(_holding(task))
    lines = []
    for note in notes:
        body = note.body
        lines.append(
            WorkerLine(
                name=note.name,
                host=body.get("host", ""),
                pid=body.get("pid", 0),
                started_at=datetime.fromisoformat(body["started_at"]) if body.get("started_at") else None,
                seen_at=note.updated_at,
                alive=note.updated_at is not None and now - note.updated_at <= SILENT_AFTER,
                draining=bool(body.get("draining")),
                concurrency=body.get("concurrency", 0),
                phases=[(pipeline, phase) for pipeline, phase in body.get("phases", [])],
                holds=holds.pop(note.name, []),
                hooks=msgspec.convert(body.get("hooks", []), list[GuardState]),
            )
        )
    # Pulled leases, and those of workers that someone took off the roll.
    lines += [WorkerLine(name=name, holds=tasks) for name, tasks in sorted(holds.items())]
    return lines


def serving(workers: Sequence[WorkerLine]) -> dict[tuple[str, str], int]:
    """How many live workers serve each phase."""
    found: dict[tuple[str, str], int] = {}
    for worker in workers:
        if worker.alive and not worker.draining:
            for place in worker.phases:
                found[place] = found.get(place, 0) + 1
    return found


def _holding(task: Task) -> Holding:
    return Holding(
        task_id=task.task_id,
        title=task.title,
        pipeline=task.pipeline,
        phase=task.phase,
        since=task.started_at,
        leased_until=task.leased_until,
        cancel_requested=task.cancel_requested,
        progress=shown(task, "progress"),
    )
