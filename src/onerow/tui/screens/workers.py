"""Workers, and the tasks that each holds with the time that is left of its lease."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar, NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from onerow.cli import formatting
from onerow.core.plan import Plan
from onerow.engine.views import Holding, Views, WorkerLine
from onerow.tui.cells import Cell, bar, progress_text
from onerow.tui.control_acts import drain_act
from onerow.tui.grid import Grid, Line
from onerow.tui.layout import Column
from onerow.tui.page import Page, page_bindings
from onerow.tui.places import Place

COLUMNS = (
    Column("worker", 44, grow=True, least=20),
    Column("process", 30, drop=4),
    Column("state", 14),
    Column("slots", 12, right=True),
    Column("progress", 20, drop=2),
    Column("lease", 18),
    Column("for", right=True),
    Column("phases", 40, drop=1),
)
_LEASE_BAR = 8
_SHOWN_SILENT = 3


class Found(NamedTuple):
    """What the page shows."""

    workers: list[WorkerLine]
    plans: dict[str, Plan]
    now: datetime


class WorkersPage(Page):
    """Worker processes and pullers."""

    page = "workers"
    BINDINGS: ClassVar[list[BindingType]] = page_bindings("workers")

    def __init__(self) -> None:
        super().__init__()
        self._workers: dict[str, WorkerLine] = {}

    def compose(self) -> ComposeResult:
        yield Grid(COLUMNS, id="workers", empty="No worker. Run: onerow worker APP")

    def reading(self) -> Callable[[Views], Any]:
        queue = self.monitor.queue

        def read(views: Views) -> Found:
            views.require_workers()
            return Found(views.workers(), views.plans(), queue.store.now())

        return read

    def show(self, found: Found) -> None:
        self._workers = {worker.name: worker for worker in found.workers}
        lines, gone = [], 0
        for worker in sorted(found.workers, key=lambda worker: (not worker.alive, worker.name)):
            gone += not worker.alive and not worker.holds
            if gone > _SHOWN_SILENT and not worker.alive and not worker.holds:
                continue  # folded into one line
            lines.append(Line(f"worker\n{worker.name}", _worker_cells(worker, found.now)))
            lines += [Line(f"task\n{held.task_id}", _held_cells(held, found)) for held in worker.holds]
        if gone > _SHOWN_SILENT:
            lines.append(Line("", [(f"silent workers not shown: {gone - _SHOWN_SILENT}", "dim"), *[""] * 7]))
        self.main_grid.load(lines)

    @on(Grid.Opened)
    async def _opened(self, event: Grid.Opened) -> None:
        kind, _, name = event.key.partition("\n")
        if kind == "task":
            await self.monitor.go(Place("task", name))
        else:
            await self.monitor.go(Place("tasks", f'worker:"{name}"'))

    def action_drain(self) -> None:
        kind, _, name = self.main_grid.key.partition("\n")
        worker = self._workers.get(name) if kind == "worker" else None
        if worker is None:
            self.monitor.say("move to a worker first", bad=True)
        elif not worker.alive or worker.puller or worker.draining:
            state = "draining already" if worker.draining else "a puller" if worker.puller else "silent"
            self.monitor.say(f"{name} is {state}", bad=True)
        else:
            self.monitor.propose(drain_act(self.monitor.queue, worker))


def _worker_cells(worker: WorkerLine, now: datetime) -> list[Cell]:
    if not worker.alive:
        state: Cell = ("silent", "bold red")
    elif worker.draining:
        state = ("draining", "yellow")
    else:
        state = ("receiving" if worker.only_receives else "pulling" if worker.puller else "alive", "green")
    slots = f"{len(worker.holds)}/{worker.concurrency}" if worker.concurrency else f"{len(worker.holds)}"
    return [
        (worker.name, "bold"),
        f"{worker.host} {worker.pid}" if worker.host else "",
        state,
        slots,
        "",
        f"seen {formatting.ago(worker.seen_at, now)} ago" if worker.seen_at is not None else "",
        formatting.ago(worker.started_at, now),
        ", ".join(f"{pipeline}.{phase}" for pipeline, phase in worker.phases),
    ]


def _held_cells(held: Holding, found: Found) -> list[Cell]:
    left = 0.0 if held.leased_until is None else (held.leased_until - found.now).total_seconds()
    share = left / held.lease(found.plans).total_seconds()
    lease = f"{bar(share, _LEASE_BAR)} {formatting.span(left)}" if left > 0 else "ended"
    return [
        f"  {held.title or held.task_id}",
        "",
        ("cancelling", "yellow") if held.cancel_requested else (held.phase, "cyan"),
        "",
        (progress_text(held.progress, 10), "cyan"),
        (lease, "green" if share > 1 / 6 else "bold red"),
        formatting.ago(held.since, found.now),
        held.task_id,
    ]
