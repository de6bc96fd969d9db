"""Workers and the tasks they hold."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from onerow.core.corruption import shown
from onerow.core.plan import Plan
from onerow.core.task import Task
from onerow.engine.control.definitions import PULLER
from onerow.engine.control.inbox_counts import InboxState
from onerow.engine.events.hooks import GuardState
from onerow.ports import Finding, Note

SILENT_AFTER = timedelta(seconds=15)
"""Workers renew their registration every five seconds; without renewal for this long they count as dead."""

_USUAL_LEASE = timedelta(seconds=30)


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """A task held by a worker."""

    task_id: str
    title: str
    pipeline: str
    phase: str
    since: datetime | None
    leased_until: datetime | None
    cancel_requested: bool
    progress: Any

    def lease(self, plans: Mapping[str, Plan]) -> timedelta:
        """Return how long a whole lease of its phase is."""
        plan = plans.get(self.pipeline)
        return plan.phase(self.phase).lease if plan is not None and plan.knows(self.phase) else _USUAL_LEASE


class WorkerLine(msgspec.Struct, frozen=True, kw_only=True):
    """A registered worker process or puller, or an unregistered one that holds leases."""

    name: str
    puller: bool = False
    host: str = ""
    pid: int = 0
    started_at: datetime | None = None
    seen_at: datetime | None = None
    alive: bool = False
    draining: bool = False
    overdue: float = 0.0  # seconds for which it should have claimed, and did not
    concurrency: int = 0
    phases: list[tuple[str, str]] = []
    holds: list[Holding] = []
    hooks: list[GuardState] = []  # hooks that exceed their time limit or lost events
    inboxes: list[InboxState] = []  # inboxes that it receives from

    @property
    def only_receives(self) -> bool:
        """Whether it is `onerow inbox`, which adds tasks and runs none."""
        return bool(self.inboxes) and not self.phases


def roll(notes: Iterable[Note], held: Iterable[Task], now: datetime) -> list[WorkerLine]:
    """Return the workers with the tasks that each holds."""
    holds: dict[str, list[Holding]] = {}
    for task in held:
        holds.setdefault(task.leased_by or "", []).append(_holding(task))
    lines = []
    for note in notes:
        body = note.body
        lines.append(
            WorkerLine(
                name=note.name,
                puller=body.get("kind") == PULLER,
                host=body.get("host", ""),
                pid=body.get("pid", 0),
                started_at=datetime.fromisoformat(body["started_at"]) if body.get("started_at") else None,
                seen_at=note.updated_at,
                alive=note.updated_at is not None and now - note.updated_at <= SILENT_AFTER,
                draining=bool(body.get("draining")),
                overdue=float(body.get("overdue", 0.0)),
                concurrency=body.get("concurrency", 0),
                phases=[(pipeline, phase) for pipeline, phase in body.get("phases", [])],
                holds=holds.pop(note.name, []),
                hooks=msgspec.convert(body.get("hooks", []), list[GuardState]),
                inboxes=msgspec.convert(body.get("inboxes", []), list[InboxState]),
            )
        )
    # Programs that claim without a puller, and workers whose registration was removed.
    lines += [WorkerLine(name=name, holds=tasks) for name, tasks in sorted(holds.items())]
    return lines


def check_worker(workers: Sequence[WorkerLine], name: str) -> list[Finding]:
    """Return whether a worker, given by its name or its host, really claims; one of a host's workers is enough."""
    found = [worker for worker in workers if name in (worker.name, worker.host) and not worker.puller]
    if not found:
        return [Finding("bad", f"no worker {name!r} is registered", "see: onerow workers")]
    claiming = [worker for worker in found if worker.alive and not worker.draining and worker.overdue == 0]
    if claiming:
        return [Finding("good", f"worker {worker.name} claims") for worker in claiming]
    return [Finding("bad", f"worker {worker.name} {_why_not(worker)}") for worker in found]


def _why_not(worker: WorkerLine) -> str:
    if not worker.alive:
        return "is silent"
    if worker.draining:
        return "drains: it takes no new tasks"
    return f"should have claimed {worker.overdue:.0f} s ago"


def serving(workers: Sequence[WorkerLine]) -> dict[tuple[str, str], int]:
    """Number of live workers and pullers by (pipeline, phase)."""
    found: dict[tuple[str, str], int] = {}
    for worker in workers:
        if worker.alive and not worker.draining:
            for phase in worker.phases:
                found[phase] = found.get(phase, 0) + 1
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
