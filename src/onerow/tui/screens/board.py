"""The board: pipelines with their phases, the running tasks and the latest failures."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar, NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Static

from onerow.cli import formatting
from onerow.cli.inspect.board import curve, slots_text, state_cell, waits_cell
from onerow.engine.views import Board, FailureGroup, Lane, Row, Views
from onerow.engine.views.choke import choke_points
from onerow.engine.views.counts import NOT_COUNTED
from onerow.tui.cells import Cell, message_of, progress_share, progress_text, short_ids
from onerow.tui.control_acts import limit_act, pause_act
from onerow.tui.grid import Grid, Line
from onerow.tui.layout import Column
from onerow.tui.page import Page, page_bindings
from onerow.tui.places import Place

_CURVE_OVER = timedelta(minutes=15)
_COUNTED_NOW = timedelta(seconds=3)
_RUNNING = 50
_FAILED = 100
_BAR = 14

LANES = (
    Column("phase", 24),
    Column("waiting", right=True),
    Column("running", 12),
    Column("parked", right=True, drop=2),
    Column("failed", right=True),
    Column("oldest", right=True, drop=3),
    Column("run p95", right=True, drop=6),
    Column("wait p95", right=True, drop=7),
    Column("/min", right=True, drop=4),
    Column("last 15 min", 15, drop=5),
    Column("state", 60, grow=True, least=32),
)
RUNNING = (
    Column("task", 16, drop=1),
    Column("title", 60, grow=True),
    Column("phase", 18),
    Column("progress", 24),
    Column("for", right=True),
    Column("try", right=True, drop=2),
)
FAILURES = (Column("n", right=True), Column("phase", 20), Column("cause", 80, grow=True), Column("ago", right=True))


class Found(NamedTuple):
    """What the board shows."""

    board: Board
    curves: dict[tuple[str, str], list[int]]
    running: list[Row]
    failures: list[FailureGroup]
    chokes: dict[tuple[str, str], str]


def read_board(views: Views) -> Found:
    """Read everything that the board shows."""
    board = views.board()
    minutes = views.minutes(_CURVE_OVER)
    names = sorted(minutes)
    curves = {
        (lane.pipeline, lane.phase): [
            minutes[minute][lane.pipeline, lane.phase].done if (lane.pipeline, lane.phase) in minutes[minute] else 0
            for minute in names
        ]
        for pipeline in board.pipelines
        for lane in pipeline.lanes
    }
    running = views.find("status:processing sort:oldest", limit=_RUNNING).tasks
    failures = sorted(views.failures(limit=_FAILED).groups, key=lambda group: group.last_at, reverse=True)
    return Found(board, curves, running, failures, choke_points(board))


class BoardPage(Page):
    """Home: what every phase does now."""

    page = "board"
    BINDINGS: ClassVar[list[BindingType]] = page_bindings("board")
    DEFAULT_CSS = """
    BoardPage #lanes { height: auto; max-height: 60%; }
    BoardPage #below { height: 1fr; border-top: solid $panel; }
    BoardPage #running-box { width: 3fr; }
    BoardPage #failures-box { width: 2fr; border-left: solid $panel; }
    BoardPage .title { height: 1; color: $primary; text-style: bold; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._lanes: dict[str, Lane] = {}

    def compose(self) -> ComposeResult:
        yield Grid(LANES, id="lanes", empty="Nothing is published. Start a worker, or run: onerow demo --monitor")
        with Horizontal(id="below"):
            with Vertical(id="running-box"):
                yield Static(" running", classes="title")
                yield Grid(RUNNING, id="running", head=False, empty="No task is running.")
            with Vertical(id="failures-box"):
                yield Static(" latest failures", classes="title")
                yield Grid(FAILURES, id="failures", head=False, empty="No task has failed.")

    def reading(self) -> Callable[[Views], Any]:
        return read_board

    def show(self, found: Found) -> None:
        now = found.board.at
        old = now - found.board.ended_at
        not_late = found.board.ended_at != NOT_COUNTED
        counted = f", counted {formatting.span(old.total_seconds())} ago" if old > _COUNTED_NOW else ""
        lines: list[Line] = []
        for pipeline in found.board.pipelines:
            ended = f"{pipeline.completed:,} completed{counted}" if not_late else "counting tasks …"
            lines.append(Line(f"{pipeline.name}/*", [pipeline.name, f"  {ended}"], heading=True))
            lines += [Line(f"{lane.pipeline}/{lane.phase}", _lane_cells(lane, found, now)) for lane in pipeline.lanes]
        self._lanes = {f"{lane.pipeline}/{lane.phase}": lane for each in found.board.pipelines for lane in each.lanes}
        self.main_grid.load(lines)
        self.query_one("#running", Grid).load(
            [
                Line(row.task_id, running_cells(row, short, now))
                for row, short in zip(found.running, short_ids([row.task_id for row in found.running]), strict=True)
            ]
        )
        self.query_one("#failures", Grid).load(
            [
                Line("\n".join([group.tasks_query, group.exception, group.where]), _failure_cells(group, now))
                for group in found.failures
            ]
        )

    @on(Grid.Opened, "#lanes")
    async def _open_lane(self, event: Grid.Opened) -> None:
        pipeline, _, phase = event.key.partition("/")
        query = f"pipeline:{pipeline}" + ("" if phase == "*" else f" phase:{phase}")
        await self.monitor.go(Place("tasks", query))

    @on(Grid.Opened, "#running")
    async def _open_task(self, event: Grid.Opened) -> None:
        await self.monitor.go(Place("task", event.key))

    @on(Grid.Opened, "#failures")
    async def _open_failures(self, event: Grid.Opened) -> None:
        await self.monitor.go(Place("tasks", event.key.partition("\n")[0]))

    def pipeline_here(self) -> str:
        return self.main_grid.key.partition("/")[0]

    def action_pause(self) -> None:
        if line := self.main_grid.key:
            self.monitor.propose(pause_act(self.monitor.queue, line, self._lanes.values()))

    def action_limit(self) -> None:
        if (lane := self._lanes.get(self.main_grid.key)) is not None and lane.kind:
            self.monitor.propose(limit_act(self.monitor.queue, lane))


def _lane_cells(lane: Lane, found: Found, now: datetime) -> Sequence[Cell]:
    choke = found.chokes.get((lane.pipeline, lane.phase))
    return [
        lane.phase,
        (formatting.number(lane.waiting), "yellow"),
        (slots_text(lane), "cyan"),
        (formatting.number(lane.parked), "magenta"),
        (formatting.number(lane.failed), "bold red"),
        formatting.ago(lane.oldest, now) if lane.oldest is not None and lane.oldest <= now else "",
        formatting.millis(lane.run_p95),
        formatting.millis(lane.wait_p95),
        formatting.number(lane.per_minute),
        (curve(found.curves.get((lane.pipeline, lane.phase), [])), "green"),
        (f"⚠ {choke}", "bold yellow") if choke else state_cell(lane, now) or waits_cell(lane),
    ]


def running_cells(row: Row, short: str, now: datetime) -> Sequence[Cell]:
    """Return a running task with its progress as a bar."""
    shown = progress_text(row.progress, _BAR) or "no progress reported"
    return [
        short,
        row.title,
        f"{row.phase}",
        (shown, "cyan" if progress_share(row.progress) is not None else "dim"),
        formatting.ago(row.started_at, now),
        f"{row.attempt}",
    ]


def _failure_cells(group: FailureGroup, now: datetime) -> Sequence[Cell]:
    cause = f"{group.exception or group.error_class} {group.where}".strip()
    return [
        (f"{group.count:,}", "bold red"),
        group.phase,
        f"{cause}: {message_of(group.error, group.exception)}",
        formatting.ago(group.last_at, now),
    ]
