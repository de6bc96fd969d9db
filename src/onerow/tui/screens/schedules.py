"""Schedules: the next and the last time, pause, run now."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar, NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from onerow.cli import formatting
from onerow.engine.views import Scheduled, Views
from onerow.tui.cells import Cell
from onerow.tui.control_acts import run_now_act, schedule_pause_act
from onerow.tui.grid import Grid, Line
from onerow.tui.layout import Column
from onerow.tui.page import Page, page_bindings
from onerow.tui.places import Place

COLUMNS = (
    Column("pipeline", 24),
    Column("schedule", 40, grow=True),
    Column("cron", 24),
    Column("zone", 20, drop=3),
    Column("next", 24),
    Column("in", right=True),
    Column("last", 24, drop=2),
    Column("policy", 24, drop=4),
    Column("state", 40, drop=1),
)


class Found(NamedTuple):
    """What the page shows."""

    schedules: list[Scheduled]
    now: datetime


class SchedulesPage(Page):
    """The schedules of all published pipelines."""

    page = "schedules"
    BINDINGS: ClassVar[list[BindingType]] = page_bindings("schedules")

    def __init__(self) -> None:
        super().__init__()
        self._schedules: dict[str, Scheduled] = {}

    def compose(self) -> ComposeResult:
        yield Grid(COLUMNS, empty="No schedule. A pipeline has one with: videos.cron('0 9 * * 1-5')")

    def reading(self) -> Callable[[Views], Any]:
        queue = self.monitor.queue
        return lambda views: Found(views.schedules(), queue.store.now())

    def show(self, found: Found) -> None:
        self._schedules = {f"{each.pipeline}/{each.cron.name}": each for each in found.schedules}
        self.main_grid.load([Line(key, self._cells(each, found.now)) for key, each in self._schedules.items()])

    def _cells(self, each: Scheduled, now: datetime) -> list[Cell]:
        paused = each.pause
        why = "" if paused is None else f": {paused.reason}" if paused.reason else f" by {paused.by}"
        return [
            each.pipeline,
            each.cron.name,
            each.cron.expression,
            each.cron.tz,
            self.time_of(each.next),
            formatting.span((each.next - now).total_seconds()),
            self.time_of(each.last) or "never",
            f"catch up {each.cron.catch_up}, overlap {each.cron.overlap}",
            (f"paused{why}", "yellow") if paused is not None else (each.error and f"adds no task: {each.error}", "red"),
        ]

    def _schedule(self) -> Scheduled | None:
        return self._schedules.get(self.main_grid.key)

    def pipeline_here(self) -> str:
        return each.pipeline if (each := self._schedule()) is not None else ""

    @on(Grid.Opened)
    async def _opened(self) -> None:
        each = self._schedule()
        if each is None:
            return
        if each.task_id:
            await self.monitor.go(Place("task", each.task_id))
        else:
            self.monitor.say(f"{each.cron.name} has not fired yet")

    def action_pause(self) -> None:
        if (each := self._schedule()) is not None:
            self.monitor.propose(schedule_pause_act(self.monitor.queue, each))

    def action_run_now(self) -> None:
        if (each := self._schedule()) is not None:
            self.monitor.propose(run_now_act(self.monitor.queue, each))
