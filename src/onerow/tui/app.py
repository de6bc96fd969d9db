"""The monitor: shows one page at a time, reads it again and again in a thread, and starts operations."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from time import monotonic
from types import FrameType
from typing import Any, ClassVar, TypeVar

from rich.segment import Segments
from rich.traceback import Traceback
from textual import events, on
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen, Screen
from textual.widgets import Input

from onerow.core.errors import BadInput, OnerowError, StoreError, with_fix
from onerow.core.plan import Plan
from onerow.core.times import FAR
from onerow.engine.output.terminal import neutral
from onerow.engine.queue.queue import Queue
from onerow.engine.views import Completions, Views
from onerow.engine.views.counts import BackgroundCounts
from onerow.tui.acts import Act, Report
from onerow.tui.add_form import AddForm
from onerow.tui.background import Background
from onerow.tui.dialog import Dialog
from onerow.tui.garbage import Collector
from onerow.tui.header import Header, KeyLine, State
from onerow.tui.help import Help
from onerow.tui.keys import KEYS, keys_of
from onerow.tui.page import Page
from onerow.tui.places import Place, Trail, complete_page, parse_place
from onerow.tui.prompt import Answer, Completer, Prompt
from onerow.tui.screens.board import BoardPage
from onerow.tui.screens.failures import FailuresPage
from onerow.tui.screens.limits import LimitsPage
from onerow.tui.screens.log import LogPage
from onerow.tui.screens.pulse import PulsePage
from onerow.tui.screens.schedules import SchedulesPage
from onerow.tui.screens.task import TaskPage
from onerow.tui.screens.tasks import TasksPage
from onerow.tui.screens.workers import WorkersPage
from onerow.tui.text_block import TextBlock

T = TypeVar("T")
_RETRY_AFTER = 2.0
_SHARE_OF_TIME = 0.1  # reads take at most this part of the time
_COUNTED_SOON = 0.25
_EXIT_WITHIN = 3.0
_KEYS_WAIT = 0.1  # for a dialog that has to read something first
THEMES = ("textual-dark", "textual-light", "nord", "gruvbox", "solarized-light", "ansi-dark", "ansi-light")
PAGE_TYPES: tuple[type[Page], ...] = (
    BoardPage, TasksPage, TaskPage, FailuresPage, WorkersPage, SchedulesPage, LimitsPage, PulsePage,
    LogPage,
)  # fmt: skip


# Priority bindings: the monitor itself handles them before the next key, so that what is typed after them is not lost.
_OPEN_THE_PROMPT = ("app.search", "app.go_to_line")


def _bindings() -> list[BindingType]:
    found: list[BindingType] = [
        Binding(
            key.keys, key.action.removeprefix("app."), key.text, show=False, priority=key.action in _OPEN_THE_PROMPT
        )
        for key in KEYS
        if key.action.startswith("app.") and key.action not in ("app.command_palette", "app.focus_next")
    ]
    return [*found, Binding("ctrl+c", "quit", "quit", show=False, priority=True)]


class Monitor(App[None]):
    """The terminal monitor of one queue."""

    TITLE = "onerow"
    BINDINGS: ClassVar[list[BindingType]] = _bindings()
    CSS = """
    Screen { layout: vertical; }
    #pages { height: 1fr; }
    Page { display: none; }
    Page.here { display: block; }
    """

    def __init__(
        self,
        queue: Queue,
        *,
        query: str = "",
        read_only: bool = False,
        interval: float = 1.0,
        theme: str | None = None,
    ) -> None:
        super().__init__()
        self.queue = queue
        self.read_only = read_only
        self.utc = True
        self.live = True
        self.trail = Trail(Place("tasks", query) if query else Place("board"))
        self._first_theme = theme
        self._interval = interval
        self._counting = Background(1, "count")
        self._counts = BackgroundCounts(self._counting.submit)
        self._views = Views(queue, self._counts)
        self._reads = Background(3, "read")
        self._acts = Background(2, "act")
        self._doing: dict[object, str] = {}  # the progress of each operation that runs
        self._collector = Collector()
        self._page: Page | None = None
        self._poked = asyncio.Event()
        self._forced = False
        self._error: OnerowError | None = None
        self.reads_done = 0  # for tests and the benchmark
        self.first_read_ms: float | None = None

    # ── start and end ──

    def compose(self) -> ComposeResult:
        yield Header()
        yield Vertical(id="pages")
        yield Prompt()
        yield KeyLine()

    async def on_mount(self) -> None:
        self.theme = self._first_theme or self._fitting_theme()
        self._watch_signals()
        await self._open(self.trail.here)
        self.run_worker(self._keep_reading(), name="reading", exit_on_error=True)
        self.set_interval(1.0, self._tick)

    def _fitting_theme(self) -> str:
        """Return the theme for this terminal: its own 16 colours if it has no more."""
        many = self.console.color_system in ("256", "truecolor") or self.is_headless
        return "textual-dark" if many else "ansi-dark"

    def _watch_signals(self) -> None:
        """End in good order when the terminal goes away (SIGHUP) or a SIGTERM asks for it."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            with suppress(ValueError, NotImplementedError, RuntimeError):  # only the main thread can
                loop.add_signal_handler(number, self._end_soon, number)
        if (driver := self._driver) is None or not callable(resume := signal.getsignal(signal.SIGCONT)):
            return

        def continued(number: int, frame: FrameType | None) -> None:
            # After SIGSTOP, unlike SIGTSTP, Textual still reads the terminal, and would begin to read it twice.
            if any(thread.name == "textual-input" for thread in threading.enumerate()):
                driver.suspend_application_mode()
            resume(number, frame)
            loop.call_soon_threadsafe(self.refresh)

        with suppress(ValueError):
            signal.signal(signal.SIGCONT, continued)

    def _end_soon(self, number: int) -> None:
        # A terminal that has gone away may block the end: then the process ends without it.
        timer = threading.Timer(_EXIT_WITHIN, os._exit, args=(128 + number,))
        timer.daemon = True
        timer.start()
        self.exit(return_code=128 + number)

    async def on_unmount(self) -> None:
        self._collector.stop()
        for threads in (self._reads, self._acts, self._counting):
            threads.close(0.5)

    # ── pages ──

    @property
    def page(self) -> Page | None:
        """The page that is shown."""
        return self._page if self.is_running else None

    async def _open(self, place: Place) -> None:
        pages = self.screen_stack[0].query_one("#pages", Vertical)
        kind = next(each for each in PAGE_TYPES if each.page == place.page)
        page = next(iter(pages.query(kind).results(kind)), None)
        if page is None:
            page = kind()
            await pages.mount(page)
        self._page = page
        for other in pages.query(Page).results(Page):
            other.set_class(other is page, "here")
        page.visit(place.argument)
        page.focus_main().focus(scroll_visible=False)
        self._error = None
        self.screen_stack[0].query_one(KeyLine).show(place.page, read_only=self.read_only)
        self._tick()
        self.poke()

    async def go(self, place: Place, *, replace: bool = False) -> None:
        """Open a place."""
        if replace:
            self.trail.replace(place)
        else:
            self.trail.go(place)
        await self._open(place)

    async def action_go(self, page: str) -> None:
        await self.go(Place(page))

    @on(TextBlock.Chosen, "Header")
    async def _page_clicked(self, event: TextBlock.Chosen) -> None:
        await self.go(Place(event.part))

    async def action_back(self) -> None:
        prompt = self.screen_stack[0].query_one(Prompt)
        if prompt.display:
            prompt.close()
            return
        here = self.trail.here
        place = self.trail.back()
        if place != here:
            await self._open(place)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only on the page itself, not over a dialog; and no changes in a read-only monitor."""
        if isinstance(self.screen, ModalScreen) and action != "focus_next":  # a dialog has that one too
            return not any(key.action.split("(")[0] == f"app.{action}" for key in KEYS)
        if f"app.{action}" in _OPEN_THE_PROMPT and isinstance(self.focused, Input):
            return False
        return not (action == "add" and self.read_only)

    # ── reading ──

    def poke(self) -> None:
        """Read the page now."""
        self._forced = True
        self._poked.set()

    async def _keep_reading(self) -> None:
        """Read the page that is open, again and again; a read is dropped if the page was poked since it began."""
        while True:
            self._poked.clear()
            forced, self._forced = self._forced, False
            began = monotonic()
            if (page := self.page) is not None and (self.live or forced):
                await self._read(page)
            took = monotonic() - began
            rest = max(self._interval, took / _SHARE_OF_TIME)
            if self._error is not None:
                rest = _RETRY_AFTER
            elif self._counts.late:
                rest = _COUNTED_SOON
            with suppress(TimeoutError):
                await asyncio.wait_for(self._poked.wait(), rest)

    async def _read(self, page: Page) -> None:
        read, views = page.reading(), self._views
        began = monotonic()
        self._counts.late = False  # only if this page reads counts
        future = self._reads.call(lambda: read(views))
        poked = asyncio.ensure_future(self._poked.wait())
        try:
            await asyncio.wait({future, poked}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            poked.cancel()
        # The page may be that of another task or query by now, or the monitor ends.
        if self._poked.is_set() or page is not self.page:
            if not future.cancel():
                future.exception()  # retrieved, so that asyncio does not report it
            return
        try:
            found = future.result()
        except StoreError as error:
            self._error = error
        except OnerowError as error:
            self._error, page.read_at = None, monotonic()
            page.refused(error)
        else:
            self._error, page.read_at = None, monotonic()
            page.show(found)
        self.reads_done += 1
        self._tick()
        if self.first_read_ms is None:
            self.first_read_ms = (monotonic() - began) * 1000
            self._collector.start()

    def _tick(self) -> None:
        read_at = None if self._page is None else self._page.read_at
        age = None if read_at is None else monotonic() - read_at
        counting = ["counting tasks"] if self._counts.late else []
        doing = "; ".join([*self._doing.values(), *counting])
        state = State(self.queue.url, self.trail.here.page, age, self.live, self.read_only, self._error, doing)
        for header in self.screen_stack[0].query(Header) if self.is_running else ():  # none while it ends
            header.show(state)
        self._collector.pause()

    async def in_background(self, read: Callable[[Views], Any]) -> Any:
        """Read something once. Only a worker may wait for it: keys would wait with any other caller."""
        return await self._reads.call(lambda: read(self._views))

    async def prepare(self, read: Callable[[Views], T], show: Callable[[T], object]) -> None:
        """Read what a dialog needs and show it. Later keys wait for it only for a moment."""
        future = self._reads.call(lambda: read(self._views))
        await asyncio.wait({future}, timeout=_KEYS_WAIT)
        prepared = self._prepared(future, show, self.trail.here)
        if future.done():
            await prepared
        else:
            self.say("waiting for the store")
            self.run_worker(prepared, name="dialog", group="dialog", exclusive=True)

    async def _prepared(self, future: "asyncio.Future[T]", show: Callable[[T], object], place: Place) -> None:
        try:
            found = await future
        except OnerowError as error:
            self.say(with_fix(error), bad=True)
            return
        # A dialog that comes late must not take the keys of something else.
        if place == self.trail.here and len(self.screen_stack) == 1 and not isinstance(self.focused, Input):
            show(found)

    # ── operations ──

    def propose(self, act: Act) -> None:
        """Show an operation with its number of tasks and its command; run it if the user agrees."""
        if self.read_only:
            self.say("this monitor is read-only", bad=True)
            return
        self.push_screen(Dialog(act), self._agreed)

    def _agreed(self, act: Act | None) -> None:
        if act is not None:
            if self.page is not None:
                self.page.agreed()
            self.start(act.verb, act.run)

    def start(self, verb: str, perform: Callable[[Report], str]) -> None:
        """Run an operation in the background, and say what it did."""
        self.run_worker(self._run(verb, perform), name="act")

    async def _run(self, verb: str, perform: Callable[[Report], str]) -> None:
        key, loop = object(), asyncio.get_running_loop()

        def report(text: str) -> None:
            with suppress(RuntimeError):  # the event loop has ended
                loop.call_soon_threadsafe(self._doing.__setitem__, key, text)

        self._doing[key] = verb
        self._tick()
        try:
            said = await self._acts.call(lambda: perform(report))
        except OnerowError as error:
            self.say(with_fix(error), bad=True)
        except Exception as error:  # of the program or its driver: other operations continue
            self.say(f"{verb} failed, {type(error).__name__}: {error}", bad=True)
        else:
            self.say(said)
        finally:
            self._doing.pop(key, None)
            self.poke()

    def say(self, text: str, *, bad: bool = False) -> None:
        """Show a message for some seconds."""
        self.notify(neutral(text), severity="error" if bad else "information", markup=False, timeout=6)

    # ── keys of every page ──

    async def action_quit(self) -> None:
        if not self._doing:
            self.exit()
            return
        question = f"Quit? It ends before it is done: {'; '.join(self._doing.values())}."
        ask = Act("quit", question, lambda values: "", lambda values, report: "", final=True)
        self.push_screen(Dialog(ask), lambda agreed: None if agreed is None else self.exit())

    def action_live(self) -> None:
        self.live = not self.live
        if self.live:
            self.poke()
        self._tick()

    def action_read_again(self) -> None:
        self.poke()

    def action_zone(self) -> None:
        self.utc = not self.utc
        self.say(f"times are in {'UTC' if self.utc else datetime.now().astimezone().tzname() or 'local time'}")
        self.poke()

    def action_next_theme(self) -> None:
        position = THEMES.index(self.theme) if self.theme in THEMES else -1
        self.theme = THEMES[(position + 1) % len(THEMES)]
        self.say(f"theme {self.theme}")

    def action_keys(self) -> None:
        page = self.trail.here.page
        self.push_screen(Help(page, keys_of(page, read_only=self.read_only)))

    @on(Prompt.Closed)
    def _prompt_closed(self) -> None:
        if self.page is not None:
            self.page.focus_main().focus()

    def ask(self, label: str, value: str, answer: Answer, completer: Completer | None = None) -> None:
        """Ask for one line at the bottom."""
        self.screen_stack[0].query_one(Prompt).open(label, value, answer, completer)

    def action_go_to_line(self) -> None:
        self.ask(":", "", self._go_to_line, self._complete_place)

    async def _complete_place(self, text: str, cursor: int) -> Completions:
        page, blank, query = text.partition(" ")
        if not blank:
            return complete_page(text)
        found: Completions = await self.in_background(
            lambda views: views.query_completions(query, cursor - len(page) - 1)
        )
        start = len(page) + 1
        return Completions(found.start + start, found.end + start, found.items)

    async def _go_to_line(self, line: str) -> None:
        if not line:
            return
        try:
            await self.go(parse_place(line))
        except BadInput as error:
            self.say(with_fix(error), bad=True)

    def action_search(self) -> None:
        page = self.page
        if page is not None:
            page.ask_search(self.screen_stack[0].query_one(Prompt))

    async def action_add(self) -> None:
        pipeline = "" if self.page is None else self.page.pipeline_here()

        def show(plans: Mapping[str, Plan]) -> None:
            if plans:
                self.push_screen(AddForm(self.queue, plans, pipeline), self._agreed)
            else:
                self.say("no pipeline is published: start a worker, or run: onerow publish APP", bad=True)

        await self.prepare(lambda views: views.plans(), show)

    def on_key(self, event: events.Key) -> None:
        self._collector.key()

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The palette has every key of the page."""
        page = self.page
        for key in keys_of(self.trail.here.page, read_only=self.read_only):
            if key.action.startswith("grid.") or key.action == "app.command_palette":
                continue
            on_app = key.action.startswith("app.")
            node = self if on_app or page is None else page

            async def run(action: str = key.action, node: Any = node) -> None:
                await self.run_action(action, default_namespace=node)

            yield SystemCommand(key.text, key.shown, run)

    def _fatal_error(self) -> None:
        """End after an error of the monitor itself; unlike Textual's own, the report has no local variables, which may
        contain payloads."""
        self.bell()
        traceback = Traceback(show_locals=False)
        self._exit_renderables.append(Segments(self.console.render(traceback, self.console.options)))
        self._close_messages_no_wait()

    # ── times ──

    def time_of(self, moment: datetime | None) -> str:
        """Format a time in the zone that the user chose."""
        if moment is None:
            return ""
        if moment >= FAR:
            return "never"
        if self.utc:
            return f"{moment:%Y-%m-%d %H:%M:%S}Z"
        return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"
