"""One task: its fields, why it is in its state, its timeline, and tabs with attempts, log, data, steps and history."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll

from onerow.cli import formatting
from onerow.cli.output import STATUS_STYLE
from onerow.cli.session import whole_id
from onerow.core.errors import OnerowError, with_fix
from onerow.engine.output.terminal import neutral
from onerow.engine.views import TaskDetail, Views
from onerow.tui.acts import awaited_signal, by_ids
from onerow.tui.grid import Grid
from onerow.tui.log_tail import LogTail, NewLines
from onerow.tui.page import Page, page_bindings
from onerow.tui.places import Place
from onerow.tui.prompt import Prompt
from onerow.tui.save import save_log
from onerow.tui.screens.tasks import TasksPage
from onerow.tui.task_tabs import TABS, TabState, tab_content
from onerow.tui.text_block import TextBlock, clickable
from onerow.tui.timeline import draw_timeline, life_text


class Found(NamedTuple):
    """What the page shows."""

    detail: TaskDetail
    log: NewLines | None
    words: Mapping[str, str]  # statuses in the words of the pipeline's labels

    @property
    def task(self) -> dict[str, Any]:
        return self.detail.view.task


class DetailBox(VerticalScroll):
    """The error and the traceback of an attempt; with the focus it has the whole page."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter", "close", "back to the attempts", show=False)]

    def action_close(self) -> None:
        assert isinstance(self.parent, TaskPage)
        self.parent.close_detail()


class TaskPage(Page):
    """One task."""

    page = "task"
    BINDINGS: ClassVar[list[BindingType]] = page_bindings("task")
    DEFAULT_CSS = """
    TaskPage #facts { height: auto; max-height: 8; padding: 0 1; }
    TaskPage #timeline { height: auto; max-height: 40%; border-top: solid $panel; }
    TaskPage #tabs { height: 1; background: $panel; }
    TaskPage #detail-box { height: auto; max-height: 50%; border-top: solid $panel; padding: 0 1; display: none; scrollbar-size-vertical: 1; }
    TaskPage.whole-detail #detail-box { height: 1fr; max-height: 100%; }
    TaskPage.whole-detail #facts, TaskPage.whole-detail #timeline, TaskPage.whole-detail #content { display: none; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.state = TabState()
        self._log = LogTail("")
        self._found: Found | None = None

    def compose(self) -> ComposeResult:
        yield TextBlock(id="facts")
        yield TextBlock(id="timeline")
        yield TextBlock(id="tabs")
        yield Grid((), id="content", head=False)
        with DetailBox(id="detail-box"):
            yield TextBlock(id="detail")

    # ── reading ──

    def visit(self, argument: str) -> None:
        self.close_detail()
        if argument != self.argument:
            self.state = TabState(tab=self.state.tab)
            self._log = LogTail("")
            self._found = None
            for name in ("#facts", "#timeline", "#detail"):
                self.query_one(name, TextBlock).tell(Text())
            grid = self.main_grid
            grid.empty = "reading …"
            grid.load([], ())
        super().visit(argument)

    def reading(self) -> Callable[[Views], Any]:
        queue, asked = self.monitor.queue, self.argument
        known = self._found.task["task_id"] if self._found is not None else None
        if known is not None and self._log.task_id != known:
            self._log = LogTail(known)
        read_log = self._log.reading(queue) if known is not None and self.state.tab == "log" else None

        def read(views: Views) -> Found:
            detail = views.detail(known or whole_id(queue, asked))
            words = views.labels(detail.view.task["pipeline"]).statuses
            return Found(detail, read_log() if read_log else None, words)

        return read

    # ── showing ──

    def show(self, found: Found) -> None:
        first = self._found is None
        self._found = found
        if found.log is not None:
            self._log.take(found.log)
        self.query_one("#facts", TextBlock).tell(self._facts(found))
        self._show_timeline()
        self._show_tab()
        if first and self.state.tab == "log":
            self.monitor.poke()

    def refused(self, error: OnerowError) -> None:
        self._found = None
        self.query_one("#facts", TextBlock).tell(Text(neutral(with_fix(error)), style="bold red"))
        self.query_one("#timeline", TextBlock).tell(Text())
        self.main_grid.empty = ""
        self.main_grid.load([])

    def on_resize(self) -> None:
        if self._found is not None:
            self._show_timeline()

    def _facts(self, found: Found) -> Text:
        task, why, now = found.task, found.detail.view.why, found.detail.at
        parked = task["status"] == "waiting" and task["awaiting"] is not None
        status = "parked" if parked else str(task["status"])
        used = task["retry_count"] - task["retry_base"]
        text = Text(overflow="ellipsis")
        text.append(neutral(task["title"] or task["task_id"]), "bold")
        text.append("  ")
        text.append(neutral(found.words.get(status, status)), STATUS_STYLE[status])
        text.append(neutral(f" in {task['pipeline']}.{task['phase']}"))
        text.append(f"   attempt {task['attempt']}, {used} of {task['max_retries']} retries used\n", "dim")
        facts = [
            task["task_id"],
            f"user {task['user_id']}" if task["user_id"] else "",
            f"parent {task['parent_id']}" if task["parent_id"] else "",
            f"from {why.inbox}" if why.inbox else "",
            f"added {formatting.ago(task['created_at'], now)} ago",
            f"priority {task['priority']}" if task["priority"] else "",
            f"limit key {task['limit_key']}" if task["limit_key"] else "",
            f"unique {task['unique_key']}" if task["unique_key"] else "",
            life_text(found.detail),
        ]
        text.append(neutral("  ".join(fact for fact in facts if fact)), "dim")
        if task["leased_until"] is not None and task["status"] == "processing":
            left = (task["leased_until"] - now).total_seconds()
            text.append(neutral(f"  lease {formatting.span(left)} by {task['leased_by']}"), "cyan")
        text.append(f"\n{neutral(why.sentence)}")
        if why.command:
            if why.first:
                text.append(f"\n→ {why.first}, then:")
            text.append(f"\n$ {neutral(why.command)}", "green")
        return text

    def _show_timeline(self) -> None:
        assert self._found is not None
        text = draw_timeline(self._found.detail, max(20, self.size.width - 2), fold=self.state.fold_idle)
        self.query_one("#timeline", TextBlock).tell(text)

    def _show_tab(self) -> None:
        assert self._found is not None
        tabs = Text(no_wrap=True)
        for tab in TABS:
            tabs.append(f" {tab} ", clickable("reverse bold" if tab == self.state.tab else "", tab))
        if self.state.tab == "log":
            follow = "following" if self.state.follow else "f: follow"
            tabs.append(f"   {follow}   level {self._log.level or 'all'} (l)   w: save", "dim")
        self.query_one("#tabs", TextBlock).tell(tabs)
        columns, lines, empty = tab_content(self.state, self._found.detail, self._log, self.time_of)
        grid = self.main_grid
        grid.empty = empty
        grid.load(lines, columns)
        if self.state.tab == "log" and self.state.follow:
            grid.action_last()
        self._show_detail()

    @on(Grid.Moved)
    def _moved(self) -> None:
        # Reading further up must not be interrupted by new lines.
        grid, state = self.main_grid, self.state
        if state.tab == "log" and state.follow and grid.cursor < len(grid.lines) - 1:
            state.follow = False
            self._show_tab()
        self._show_detail()

    def _show_detail(self) -> None:
        text = self.state.details.get(self.main_grid.key)
        self.query_one(DetailBox).display = text is not None
        if text is not None:
            self.query_one("#detail", TextBlock).tell(text)
        else:
            self.close_detail()

    def close_detail(self) -> None:
        """Show the whole page again after the details of one line."""
        if self.has_class("whole-detail"):
            self.remove_class("whole-detail")
            self.main_grid.focus()

    # ── keys ──

    def action_tab(self, step: int) -> None:
        self._open_tab(TABS[(TABS.index(self.state.tab) + step) % len(TABS)])

    @on(TextBlock.Chosen, "#tabs")
    def _tab_clicked(self, event: TextBlock.Chosen) -> None:
        self._open_tab(event.part)

    def _open_tab(self, tab: str) -> None:
        self.close_detail()
        self.state.tab = tab
        self.main_grid.load([], ())
        self.main_grid.cursor = 0
        if self._found is not None:
            self._show_tab()
        self.monitor.poke()

    @on(Grid.Opened)
    async def _opened(self, event: Grid.Opened) -> None:
        kind, _, name = event.key.partition("\n")
        if kind == "task":
            await self.monitor.go(Place("task", name))
        elif kind == "tree":
            self.state.toggled ^= {name}
            self._show_tab()
        elif event.key in self.state.details:
            self.add_class("whole-detail")
            self.query_one(DetailBox).focus()

    @on(Grid.Edge)
    def _edge(self, event: Grid.Edge) -> None:
        if self.state.tab == "log" and event.step > 0:
            self.state.follow = True

    def action_fold_idle(self) -> None:
        self.state.fold_idle = not self.state.fold_idle
        if self._found is not None:
            self._show_timeline()

    def action_follow(self) -> None:
        self.state.tab, self.state.follow = "log", not (self.state.follow and self.state.tab == "log")
        self.monitor.poke()

    def action_level(self) -> None:
        self.monitor.say(f"level {self._log.next_level()}")
        if self._found is not None:
            self._show_tab()

    def action_all_frames(self) -> None:
        self.state.all_frames = not self.state.all_frames
        if self._found is not None:
            self._show_tab()

    def action_save_log(self) -> None:
        if self._found is None:
            return
        task_id = self._found.task["task_id"]
        name = "".join(char if char.isalnum() or char in "-_." else "_" for char in task_id)
        self.monitor.ask("save the log to", f"{name}.log", lambda path: self._save(task_id, path))

    def _save(self, task_id: str, path: str) -> None:
        queue = self.monitor.queue
        if path:
            self.monitor.start("save the log", lambda report: save_log(queue, task_id, path))

    def ask_search(self, prompt: Prompt) -> None:
        label = "find in the log" if self.state.tab == "log" else "/"
        prompt.open(label, "", self.search)

    def search(self, text: str) -> None:
        self.state.follow = False
        super().search(text)

    async def action_neighbour(self, step: int) -> None:
        listed: Sequence[str] = []
        for page in self.app.screen_stack[0].query(TasksPage):
            listed = page.listed_ids
        here = self._found.task["task_id"] if self._found is not None else self.argument
        if here not in listed:
            self.monitor.say("this task is not in the list of tasks", bad=True)
            return
        position = listed.index(here) + step
        if 0 <= position < len(listed):
            await self.monitor.go(Place("task", listed[position]), replace=True)

    def pipeline_here(self) -> str:
        return self._found.task["pipeline"] if self._found is not None else ""

    def _propose(self, operation: str, **initial: str) -> None:
        if self._found is not None:
            self.propose(operation, by_ids([self._found.task["task_id"]]), **initial)

    def action_retry(self) -> None:
        self._propose("retry")

    def action_cancel(self) -> None:
        self._propose("cancel")

    def action_replay(self) -> None:
        self._propose("replay")

    def action_finish(self) -> None:
        self._propose("finish")

    def action_reschedule(self) -> None:
        self._propose("reschedule")

    def action_priority(self) -> None:
        if self._found is not None:
            self._propose("set-priority", priority=str(self._found.task["priority"]))

    def action_signal(self) -> None:
        if self._found is not None:
            self._propose("signal", name=awaited_signal(self._found.task["awaiting"]))

    def action_copy(self) -> None:
        if self._found is not None:
            task_id = self._found.task["task_id"]
            self.app.copy_to_clipboard(neutral(task_id))
            self.monitor.say(f"copied {task_id}")
