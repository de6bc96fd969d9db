"""Limits, rates and pauses of every phase."""

from collections.abc import Callable
from datetime import datetime
from itertools import groupby
from typing import Any, ClassVar, NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from onerow.cli import formatting
from onerow.cli.inspect.board import slots_text, state_cell, waits_cell
from onerow.core.durations import spell_duration
from onerow.engine.views import PhaseLine, Views
from onerow.tui.cells import Cell
from onerow.tui.control_acts import limit_act, pause_act
from onerow.tui.grid import Grid, Line
from onerow.tui.layout import Column
from onerow.tui.page import Page, page_bindings
from onerow.tui.places import Place

COLUMNS = (
    Column("phase", 40, grow=True),
    Column("running", 12),
    Column("limit", right=True),
    Column("per key", right=True, drop=2),
    Column("rate", 12, right=True),
    Column("starts left", right=True, drop=3),
    Column("timeout", right=True, drop=5),
    Column("retries", 40, drop=6),
    Column("failed", right=True, drop=4),
    Column("workers", right=True, drop=1),
    Column("state", 60, grow=True, least=10),
)


class Found(NamedTuple):
    """What the page shows."""

    phases: list[PhaseLine]
    now: datetime


class LimitsPage(Page):
    """What holds each phase back, and how to change it."""

    page = "limits"
    BINDINGS: ClassVar[list[BindingType]] = page_bindings("limits")

    def __init__(self) -> None:
        super().__init__()
        self._phases: dict[str, PhaseLine] = {}

    def compose(self) -> ComposeResult:
        yield Grid(COLUMNS, empty="Nothing is published. Start a worker, or run: onerow publish APP")

    def reading(self) -> Callable[[Views], Any]:
        queue = self.monitor.queue

        def read(views: Views) -> Found:
            views.require_workers()
            return Found(views.phases(), queue.store.now())

        return read

    def show(self, found: Found) -> None:
        self._phases = {f"{each.pipeline}/{each.phase}": each for each in found.phases}
        lines: list[Line] = []
        for pipeline, phases in groupby(found.phases, lambda each: each.pipeline):
            lines.append(Line(f"{pipeline}/*", [pipeline], heading=True))
            lines += [Line(f"{each.pipeline}/{each.phase}", _cells(each, found.now)) for each in phases]
        self.main_grid.load(lines)

    def pipeline_here(self) -> str:
        return self.main_grid.key.partition("/")[0]

    @on(Grid.Opened)
    async def _opened(self, event: Grid.Opened) -> None:
        pipeline, _, phase = event.key.partition("/")
        query = f"pipeline:{pipeline}" + ("" if phase == "*" else f" phase:{phase}")
        await self.monitor.go(Place("tasks", query))

    def action_pause(self) -> None:
        if line := self.main_grid.key:
            lanes = [each.lane for each in self._phases.values()]
            self.monitor.propose(pause_act(self.monitor.queue, line, lanes))

    def action_limit(self) -> None:
        if (each := self._phases.get(self.main_grid.key)) is not None:
            self.monitor.propose(limit_act(self.monitor.queue, each.lane, each.rate, each.rate_per_key))


def _cells(each: PhaseLine, now: datetime) -> list[Cell]:
    lane = each.lane
    left = "" if each.starts_left is None else f"{each.starts_left:,}"
    if each.next_start is not None:
        left = f"next {formatting.due(each.next_start, now)}"
    return [
        f"  {each.phase}",
        (slots_text(lane), "cyan"),
        "" if lane.limit is None else str(lane.limit),
        "" if lane.per_key is None else str(lane.per_key),
        each.rate,
        left,
        "" if each.timeout is None else spell_duration(each.timeout),
        each.retry,
        "" if each.failure_share is None else f"{each.failure_share:.0%}",
        str(len(each.workers)) if lane.kind in ("run", "batch", "command") else "",
        state_cell(lane, now) or waits_cell(lane),
    ]
