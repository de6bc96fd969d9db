"""The list of tasks: tabs by status, a query, pages, marks, and operations on marked or all matching tasks."""

import json
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar, NamedTuple

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from onerow.cli import formatting
from onerow.cli.inspect.tasks import row_note
from onerow.cli.output import STATUS_STYLE
from onerow.core.errors import OnerowError, with_fix
from onerow.core.labels import Labels
from onerow.engine.output.terminal import neutral
from onerow.engine.views import Completions, Overview, Row, Views
from onerow.engine.views import TaskPage as Found
from onerow.tui.acts import awaited_signal, by_ids, by_query
from onerow.tui.cells import Cell, progress_share, progress_text, short_ids
from onerow.tui.grid import Grid, Line
from onerow.tui.layout import Column
from onerow.tui.page import Page, page_bindings
from onerow.tui.places import Place, narrowed
from onerow.tui.prompt import Prompt
from onerow.tui.text_block import TextBlock, clickable

COLUMNS = (
    Column("task", 36, drop=5),
    Column("status", 12),
    Column("phase", 28, drop=2),
    Column("user", 16, drop=6),
    Column("title", 80, grow=True, least=22),
    Column("try", right=True, drop=4),
    Column("added", right=True, drop=3),
    Column("note", 80, grow=True, drop=1),
)
TABS = ("all", "waiting", "processing", "parked", "failed", "completed", "cancelled")
_ORDERS = ("", "sort:oldest", "sort:latest", "sort:due")
_PAGE = 100
_COUNT_EVERY = timedelta(seconds=3)


class Listed(NamedTuple):
    """What the list shows; `labels` are those of the only pipeline that the query can mean."""

    page: Found
    overview: Overview
    now: datetime
    labels: Labels
    extra: list[list[Any]]  # the values of the labels' columns for each task


class TasksPage(Page):
    """Tasks that match a query."""

    page = "tasks"
    BINDINGS: ClassVar[list[BindingType]] = page_bindings("tasks")
    DEFAULT_CSS = """
    TasksPage #tabs { height: 1; }
    TasksPage #query { height: 1; color: $text-muted; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.tab = "all"
        self.order = ""
        self.marks: set[str] = set()
        self.all_marked = False
        self._cursors: list[str] = []  # of the pages before and of this one; none on the first page
        self._next: str | None = None
        self._rows: list[Row] = []
        self._counted: Overview | None = None
        self._labels = Labels()

    def compose(self) -> ComposeResult:
        yield TextBlock(id="tabs")
        yield Grid(COLUMNS, id="list", empty="No task matches.")
        yield TextBlock(id="query")

    # ── what is asked ──

    def visit(self, argument: str) -> None:
        if argument != self.argument:
            self.marks.clear()
            self.all_marked = False
            self.tab, self.order, self._cursors = "all", "", []
            grid = self.main_grid
            grid.empty = "reading …"
            grid.load([])
        super().visit(argument)

    @property
    def asked(self) -> str:
        """The whole query: what was typed, with the tab and the order."""
        query = self.argument
        if self.tab != "all":
            own = {each.name: f"({each.query})" for each in self._labels.tabs}
            query = narrowed(query, own.get(self.tab, f"status:{self.tab}"))
        return query if "sort:" in query else f"{query} {self.order}".strip()

    def reading(self) -> Callable[[Views], Any]:
        asked, after = self.asked, self._cursors[-1] if self._cursors else None

        known, queue, argument = self._counted, self.monitor.queue, self.argument

        def read(views: Views) -> Listed:
            _, labels = views.labels_of_query(argument)
            table = views.table(asked, [each for each in labels.columns if "." in each], limit=_PAGE, after=after)
            now = queue.store.now()
            # Counts cost more than the page and change slowly for the eye.
            overview = known if known is not None and abs(now - known.at) < _COUNT_EVERY else views.overview()
            return Listed(table.page, overview, now, labels, table.cells)

        return read

    # ── showing ──

    def show(self, found: Listed) -> None:
        self._rows, self._counted, self._labels = found.page.tasks, found.overview, found.labels
        self._next = found.page.next
        grid = self.main_grid
        grid.empty = f"No task matches {self.asked}." if self.asked else "No task yet."
        if re.fullmatch(r"(pipeline:\S+)?", self.asked):
            grid.empty += " Press n to add one."
        grid.load(
            [
                Line(
                    row.task_id,
                    [*_cells(row, short, found.now, found.labels), *(_spelled(value) for value in extra)],
                    marked=self.all_marked or row.task_id in self.marks,
                )
                for row, short, extra in zip(
                    self._rows, short_ids([row.task_id for row in self._rows]), found.extra, strict=True
                )
            ],
            [*COLUMNS, *(Column(each.partition(".")[2], 30, drop=1) for each in found.labels.columns if "." in each)],
        )
        self.query_one("#tabs", TextBlock).tell(self._tabs(found.overview))
        self.query_one("#query", TextBlock).tell(self._status(found))

    def refused(self, error: OnerowError) -> None:
        self._rows = []
        super().refused(error)
        self.query_one("#query", TextBlock).tell(Text(neutral(with_fix(error)), style="red"))

    @property
    def tabs(self) -> tuple[str, ...]:
        """The names of the tabs: those of the labels if there are any, else one for each status."""
        own = tuple(each.name for each in self._labels.tabs)
        return ("all", *own) if own else TABS

    def _tabs(self, overview: Overview) -> Text:
        text = Text(no_wrap=True, overflow="ellipsis")
        for tab in self.tabs:
            count = getattr(overview, tab) if tab in TABS[1:] and not self._labels.tabs and not self.argument else None
            word = self._labels.statuses.get(tab, tab)
            shown = word if count is None else f"{word} {count:,}"
            style = "reverse bold" if tab == self.tab else STATUS_STYLE.get(tab, "")
            text.append(f" {shown} ", clickable(style, tab))
        return text

    def _status(self, found: Listed) -> Text:
        text = Text(no_wrap=True, overflow="ellipsis")
        first = len(self._cursors) * _PAGE
        more = ", more below" if self._next else ""
        text.append(f" {first + 1:,} to {first + len(self._rows):,}{more}" if self._rows else " none", "bold")
        if self.all_marked:
            text.append("  all matching marked", "bold yellow")
        elif self.marks:
            text.append(f"  {len(self.marks):,} marked", "bold yellow")
        if self.asked:
            text.append(f"  {neutral(self.asked)}", "cyan")
        if found.page.looked_back_to is not None:
            text.append(f"  searched back to {self.time_of(found.page.looked_back_to)}, then time was up", "yellow")
        return text

    # ── moving ──

    @on(Grid.Edge)
    def _turn_page(self, event: Grid.Edge) -> None:
        grid = self.main_grid
        if event.step > 0 and self._next:
            self._cursors.append(self._next)
            self._next = None  # until the page is read
            grid.begin_at(0)
        elif event.step < 0 and self._cursors:
            self._cursors.pop()
            grid.begin_at(_PAGE - 1)
        else:
            return
        self.monitor.poke()

    @on(Grid.Opened)
    async def _opened(self, event: Grid.Opened) -> None:
        await self.monitor.go(Place("task", event.key))

    @property
    def listed_ids(self) -> list[str]:
        """The ids of the list, for the previous and next task of the task page."""
        return [row.task_id for row in self._rows]

    def pipeline_here(self) -> str:
        row = self._row()
        return row.pipeline if row else ""

    def _row(self) -> Row | None:
        key = self.main_grid.key
        return next((row for row in self._rows if row.task_id == key), None)

    def action_tab(self, step: int) -> None:
        here = self.tabs.index(self.tab) if self.tab in self.tabs else 0
        self.tab = self.tabs[(here + step) % len(self.tabs)]
        self._again()

    @on(TextBlock.Chosen, "#tabs")
    def _tab_clicked(self, event: TextBlock.Chosen) -> None:
        self.tab = event.part
        self._again()

    def action_order(self) -> None:
        self.order = _ORDERS[(_ORDERS.index(self.order) + 1) % len(_ORDERS)]
        self._again()

    def _again(self) -> None:
        self._cursors.clear()
        self.all_marked = False
        self.main_grid.load([])
        self.main_grid.cursor = 0
        self.monitor.poke()

    def ask_search(self, prompt: Prompt) -> None:
        prompt.open("query", self.argument, self._search, self._complete)

    async def _complete(self, text: str, cursor: int) -> Completions:
        found: Completions = await self.monitor.in_background(lambda views: views.query_completions(text, cursor))
        return found

    async def _search(self, text: str) -> None:
        await self.monitor.go(Place("tasks", text), replace=True)

    # ── marks and operations ──

    def action_mark(self) -> None:
        key = self.main_grid.key
        if not key:
            return
        if self.all_marked:
            self.all_marked = False
            self.marks = set(self.listed_ids)
        self.marks ^= {key}
        self._remark()
        self.main_grid.action_move(1)

    def action_mark_all(self) -> None:
        self.all_marked = not (self.all_marked or self.marks)
        self.marks.clear()
        self._remark()

    def _remark(self) -> None:
        grid = self.main_grid
        grid.load([line._replace(marked=self.all_marked or line.key in self.marks) for line in grid.lines])
        self.monitor.poke()

    async def _propose(self, operation: str) -> None:
        queue, query, row = self.monitor.queue, self.asked, self._row()
        initial = {} if row is None else {"priority": str(row.priority), "name": awaited_signal(row.awaiting)}
        if self.all_marked:
            await self.monitor.prepare(
                lambda views: by_query(queue, views, operation, query),
                lambda targets: self.propose(operation, targets, **initial),
            )
        elif ids := sorted(self.marks) or [key for key in [self.main_grid.key] if key]:
            self.propose(operation, by_ids(ids), **initial)

    async def action_retry(self) -> None:
        await self._propose("retry")

    async def action_cancel(self) -> None:
        await self._propose("cancel")

    async def action_replay(self) -> None:
        await self._propose("replay")

    async def action_finish(self) -> None:
        await self._propose("finish")

    async def action_reschedule(self) -> None:
        await self._propose("reschedule")

    async def action_priority(self) -> None:
        await self._propose("set-priority")

    async def action_signal(self) -> None:
        await self._propose("signal")

    def agreed(self) -> None:
        self.all_marked = False
        self.marks.clear()
        self._remark()

    def action_copy(self) -> None:
        if key := self.main_grid.key:
            self.app.copy_to_clipboard(neutral(key))
            self.monitor.say(f"copied {key}")


def _spelled(value: Any) -> str:
    return (
        "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    )


def _cells(row: Row, short: str, now: datetime, labels: Labels) -> Sequence[Cell]:
    status = "parked" if row.parked else str(row.status)
    return [
        short,
        (labels.statuses.get(status, status), STATUS_STYLE[status]),
        f"{row.pipeline}.{row.phase}",
        row.user_id,
        row.title,
        f"{row.attempt}/{row.max_retries + 1}" if row.attempt else "",
        formatting.ago(row.created_at, now),
        _note(row, now),
    ]


def _note(row: Row, now: datetime) -> Cell:
    if row.status == "processing" and row.error is None and progress_share(row.progress) is not None:
        return progress_text(row.progress, 12), "cyan"
    return row_note(row, now)
