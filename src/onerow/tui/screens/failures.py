"""Failures, grouped by cause."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar, NamedTuple

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from onerow.cli import formatting
from onerow.core.task import Task
from onerow.engine.output.terminal import neutral
from onerow.engine.queue.queue import Queue
from onerow.engine.views import FailureGroup, Failures, Views
from onerow.engine.views.failures import last_failure
from onerow.tui.acts import Targets, by_ids, by_query
from onerow.tui.cells import message_of
from onerow.tui.grid import Grid, Line
from onerow.tui.layout import Column
from onerow.tui.page import Page, page_bindings
from onerow.tui.places import Place, narrowed
from onerow.tui.text_block import TextBlock

COLUMNS = (
    Column("tasks", right=True),
    Column("phase", 30),
    Column("class", 12, drop=2),
    Column("cause", 60, grow=True),
    Column("error", 90, grow=True, drop=1),
    Column("first", right=True, drop=3),
    Column("last", right=True),
)
_LATEST = 500
_PAGE, _MOST_PAGES = 1_000, 20


class Found(NamedTuple):
    """What the page shows."""

    failures: Failures
    now: datetime


class FailuresPage(Page):
    """Groups of failed tasks, largest first."""

    page = "failures"
    BINDINGS: ClassVar[list[BindingType]] = page_bindings("failures")
    DEFAULT_CSS = """
    FailuresPage #sample { height: auto; max-height: 40%; border-top: solid $panel; padding: 0 1; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._groups: dict[str, FailureGroup] = {}
        self._all = True

    def compose(self) -> ComposeResult:
        yield Grid(COLUMNS, id="groups")
        yield TextBlock(id="sample")

    def visit(self, argument: str) -> None:
        if argument != self.argument:
            self._groups = {}
            self.main_grid.empty = "reading …"
            self.main_grid.load([])
            self._tell()
        super().visit(argument)

    def reading(self) -> Callable[[Views], Any]:
        query, queue = self.argument, self.monitor.queue

        def read(views: Views) -> Found:
            failures = views.failures(query, limit=_LATEST)
            return Found(failures, queue.store.now())

        return read

    def show(self, found: Found) -> None:
        self._groups = {
            "\n".join([group.tasks_query, group.exception, group.where]): group for group in found.failures.groups
        }
        self.main_grid.empty = "No task has failed."
        self.main_grid.load([Line(key, _cells(group, found.now)) for key, group in self._groups.items()])
        self._all = found.failures.all
        self._tell()

    @on(Grid.Moved)
    def _tell(self) -> None:
        group = self._group()
        text = Text()
        if group is not None:
            message = message_of(group.error, group.exception)[:400]
            text.append(neutral(f"{group.exception or group.error_class}: {message}"), "red")
            text.append(f"\n{neutral(group.where)}" if group.where else "", "bold")
            text.append("\n" + neutral(f"for example {', '.join(group.task_ids[:3])}"), "dim")
            if not self._all:
                text.append(f"\nof the latest {_LATEST} failures", "yellow")
        self.query_one("#sample", TextBlock).tell(text)

    def _group(self) -> FailureGroup | None:
        return self._groups.get(self.main_grid.key)

    @on(Grid.Opened)
    async def _opened(self) -> None:
        if (group := self._group()) is not None:
            await self.monitor.go(Place("tasks", self._query(group)))

    def _query(self, group: FailureGroup) -> str:
        """Return the query of the page and of the group together."""
        return narrowed(self.argument, group.tasks_query)

    def pipeline_here(self) -> str:
        return group.pipeline if (group := self._group()) is not None else ""

    async def _propose(self, operation: str) -> None:
        group, monitor = self._group(), self.monitor
        if group is None:
            return
        queue, query = monitor.queue, self._query(group)
        alone = self._all and sum(each.tasks_query == group.tasks_query for each in self._groups.values()) == 1
        await monitor.prepare(
            lambda views: by_query(queue, views, operation, query) if alone else members(queue, query, group),
            lambda targets: self.propose(operation, targets),
        )

    async def action_retry(self) -> None:
        await self._propose("retry")

    async def action_cancel(self) -> None:
        await self._propose("cancel")


def members(queue: Queue, query: str, group: FailureGroup) -> Targets:
    """Return the tasks of a group by their ids, because other groups match the same query."""
    ids: list[str] = []
    after = None
    for _ in range(_MOST_PAGES):
        page = queue.find(query, limit=_PAGE, order="latest", after=after)
        ids += [task.task_id for task in page.tasks if _cause(task) == (group.exception, group.where)]
        after = page.next
        if after is None:
            break
    return by_ids(ids)._replace(latest=after is not None)


def _cause(task: Task) -> tuple[str, str]:
    entry = last_failure(task)
    return (entry.exception, entry.where) if entry else ("", "")


def _cells(group: FailureGroup, now: datetime) -> list[str | tuple[str, str]]:
    cause = " ".join(part for part in (group.exception, group.where) if part)
    return [
        (f"{group.count:,}", "bold red"),
        f"{group.pipeline}.{group.phase}",
        group.error_class,
        cause or group.error_class,
        (message_of(group.error, group.exception), "red"),
        formatting.ago(group.first_at, now),
        formatting.ago(group.last_at, now),
    ]
