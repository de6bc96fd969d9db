"""The log of several tasks as one: of running and just ended tasks, or of the tasks that match a query."""

from collections.abc import Callable
from typing import Any, ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from onerow.engine.output.terminal import neutral
from onerow.engine.queue.task_log import EVERYTHING, Wanted
from onerow.engine.views import Row, Views
from onerow.engine.views.merged_log import MergedLines, Position, read_merged
from onerow.ports import LogLine
from onerow.tui.grid import Grid, Line
from onerow.tui.layout import Column
from onerow.tui.log_tail import LEVELS
from onerow.tui.page import Page, page_bindings
from onerow.tui.places import Place
from onerow.tui.prompt import Prompt
from onerow.tui.task_tabs import LOG_STYLE
from onerow.tui.text_block import TextBlock

_MOST = 2_000
COLUMNS = (
    Column("time", 8),
    Column("level", 8, drop=3),
    Column("phase", 24, drop=2),
    Column("task", 20, drop=1),
    Column("text", 2_000, grow=True, least=40),
)


class LogPage(Page):
    """New lines of many tasks."""

    page = "log"
    BINDINGS: ClassVar[list[BindingType]] = page_bindings("log")
    DEFAULT_CSS = "LogPage #about { height: 1; color: $text-muted; }"

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[LogLine] = []
        self._tasks: dict[str, Row] = {}
        self._positions: dict[str, Position] = {}
        self._level = ""
        self._follow = True
        self._more = False

    def compose(self) -> ComposeResult:
        yield TextBlock(id="about")
        yield Grid(COLUMNS, id="lines", empty="reading …")

    # ── reading and showing ──

    def visit(self, argument: str) -> None:
        if argument != self.argument:
            self._lines, self._tasks, self._positions, self._follow = [], {}, {}, True
            self.main_grid.empty = "reading …"
            self.main_grid.load([])
        super().visit(argument)

    def reading(self) -> Callable[[Views], Any]:
        queue, query, known = self.monitor.queue, self.argument, dict(self._positions)
        return lambda views: read_merged(views, queue, query, known)

    def show(self, new: MergedLines) -> None:
        seen = {task_id: position.seq for task_id, position in self._positions.items()}
        fresh = [line for line in new.lines if line.seq > seen.get(line.task_id, 0)]
        if fresh:
            # Almost sorted: lines of a task that is read for the first time may belong further up.
            self._lines = sorted([*self._lines, *fresh], key=lambda line: line.at)[-_MOST:]
        self._positions, self._more = new.positions, new.more
        kept = {line.task_id for line in self._lines}
        self._tasks = {name: row for name, row in self._tasks.items() if name in kept} | new.tasks
        self._show_lines()

    def _show_lines(self) -> None:
        wanted = Wanted(level=self._level) if self._level else EVERYTHING
        lines = [
            Line(
                f"{line.task_id}\n{line.seq}.{part}",
                [
                    f"{line.at:%H:%M:%S}",
                    line.level,
                    f"{line.phase}#{line.attempt}",
                    self._title(line.task_id),
                    (text.expandtabs(4), LOG_STYLE.get(line.level, "")),
                ],
            )
            for line in self._lines
            if wanted.includes(line)
            for part, text in enumerate(line.text.split("\n"))
        ]
        grid = self.main_grid
        grid.empty = f"No line of level {self._level}." if self._level else "These tasks have logged nothing yet."
        grid.load(lines)
        if self._follow:
            grid.action_last()
        self.query_one("#about", TextBlock).tell(self._about())

    def _title(self, task_id: str) -> str:
        row = self._tasks.get(task_id)
        return task_id if row is None else row.title or task_id

    def _about(self) -> Text:
        number = len(self._positions)
        tasks = f"{number} tasks" if number != 1 else "1 task"
        of = f"matching {self.argument}" if self.argument else "running or just ended"
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(neutral(f" log of {'the first ' if self._more else ''}{tasks} {of}"), "bold")
        text.append(f"   {'following' if self._follow else 'f: follow'}   level {self._level or 'all'} (l)", "dim")
        return text

    # ── keys ──

    @on(Grid.Opened)
    async def _opened(self, event: Grid.Opened) -> None:
        await self.monitor.go(Place("task", event.key.partition("\n")[0]))

    @on(Grid.Edge)
    def _edge(self, event: Grid.Edge) -> None:
        if event.step > 0:
            self._follow = True

    @on(Grid.Moved)
    def _moved(self, event: Grid.Moved) -> None:
        # Reading further up must not be interrupted by new lines.
        grid = self.main_grid
        if self._follow and grid.cursor < len(grid.lines) - 1:
            self._follow = False
            self.query_one("#about", TextBlock).tell(self._about())

    def action_follow(self) -> None:
        self._follow = not self._follow
        self._show_lines()

    def action_level(self) -> None:
        self._level = LEVELS[(LEVELS.index(self._level) + 1) % len(LEVELS)]
        self._show_lines()

    def ask_search(self, prompt: Prompt) -> None:
        prompt.open("find in the log", "", self.search)

    def search(self, text: str) -> None:
        self._follow = False
        super().search(text)

    def pipeline_here(self) -> str:
        row = self._tasks.get(self.main_grid.key.partition("\n")[0])
        return row.pipeline if row else ""
