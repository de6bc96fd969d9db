"""Failures, grouped by cause."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar, NamedTuple

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from onerow.cli import formatting
from onerow.core.errors import OnerowError, with_fix
from onerow.core.task import Task
from onerow.engine.output.terminal import neutral
from onerow.engine.queue.queue import Queue
from onerow.engine.views import FailureGroup, Failures, Views
from onerow.engine.views.failures import last_failure
from onerow.tui.acts import Targets, by_ids, by_query, task_act
from onerow.tui.cells import message_of
from onerow.tui.grid import Grid, Line
from onerow.tui.layout import Column
from onerow.tui.page import Page, page_bindings
from onerow.tui.places import Place
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
_MOST_MEMBERS = 1_000


class Found(NamedTuple):
    """What the page shows."""

    failures: Failures
    now: datetime


def group_query(group: FailureGroup) -> str:
    """Return the query of the tasks of a group, as far as the query language can say it."""
    return f"status:failed pipeline:{group.pipeline} phase:{group.phase} error:{group.error_class}"


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
        yield Grid(COLUMNS, id="groups", empty="No task has failed.")
        yield TextBlock(id="sample")

    def reading(self) -> Callable[[Views], Any]:
        query, queue = self.argument, self.monitor.queue

        def read(views: Views) -> Found:
            failures = views.failures(query, limit=_LATEST)
            return Found(failures, queue.store.now())

        return read

    def show(self, found: Found) -> None:
        self._groups = {
            f"{group_query(group)}\n{group.where}\n{group.exception}": group for group in found.failures.groups
        }
        self.main_grid.load([Line(key, _cells(group, found.now)) for key, group in self._groups.items()])
        self._all = found.failures.all
        self._tell()

    @on(Grid.Moved)
    def _tell(self) -> None:
        group = self._group()
        text = Text()
        if group is not None:
            text.append(
                neutral(f"{group.exception or group.error_class}: {message_of(group.error, group.exception)[:400]}"),
                "red",
            )
            text.append(f"\n{neutral(group.where)}" if group.where else "", "bold")
            text.append(f"\nfor example {neutral(', '.join(group.task_ids[:3]))}", "dim")
            if not self._all:
                text.append(f"\nof the latest {_LATEST} failures", "yellow")
        self.query_one("#sample", TextBlock).tell(text)

    def _group(self) -> FailureGroup | None:
        return self._groups.get(self.main_grid.key)

    @on(Grid.Opened)
    async def _opened(self) -> None:
        if (group := self._group()) is not None:
            await self.monitor.go(Place("tasks", group_query(group)))

    def pipeline_here(self) -> str:
        return group.pipeline if (group := self._group()) is not None else ""

    async def _propose(self, operation: str) -> None:
        group, monitor = self._group(), self.monitor
        if group is None:
            return
        queue = monitor.queue
        alone = sum(group_query(each) == group_query(group) for each in self._groups.values()) == 1 and self._all
        try:
            targets: Targets = await monitor.in_background(
                lambda views: by_query(queue, views, operation, group_query(group)) if alone else members(queue, group)
            )
        except OnerowError as error:
            monitor.say(with_fix(error), bad=True)
            return
        monitor.propose(task_act(queue, operation, targets))

    async def action_retry(self) -> None:
        await self._propose("retry")

    async def action_cancel(self) -> None:
        await self._propose("cancel")


def members(queue: Queue, group: FailureGroup) -> Targets:
    """Return the tasks of a group by their ids, because other groups match the same query."""
    wanted = (group.exception, group.where)
    tasks = queue.find(group_query(group), limit=_MOST_MEMBERS, order="latest").tasks
    return by_ids([task.task_id for task in tasks if cause_of(task) == wanted])


def cause_of(task: Task) -> tuple[str, str]:
    """Return exception and location of the task's failure."""
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
