"""What all pages have in common: they are read in a thread, shown on the event loop, and have keys from the table."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar, Protocol, TypeVar, cast

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widget import Widget

from onerow.core.errors import OnerowError, with_fix
from onerow.engine.queue.queue import Queue
from onerow.engine.views import Views
from onerow.tui.acts import Act, Report, Targets, task_act
from onerow.tui.grid import Grid
from onerow.tui.keys import keys_of
from onerow.tui.places import Place
from onerow.tui.prompt import Answer, Completer, Prompt

T = TypeVar("T")


def page_bindings(page: str) -> list[BindingType]:
    """Return the bindings of a page, without those of the lists and of the whole monitor."""
    return [Binding(key.keys, key.action, key.text, show=False) for key in keys_of(page) if "." not in key.action]


class Host(Protocol):
    """What a page needs of the monitor."""

    queue: Queue

    def poke(self) -> None:
        """Read the page now."""

    def say(self, text: str, *, bad: bool = False) -> None:
        """Show a message for some seconds."""

    def propose(self, act: Act) -> None:
        """Show an operation; run it if the user agrees."""

    def start(self, verb: str, perform: Callable[[Report], str]) -> None:
        """Run an operation in the background, and say what it did."""

    def ask(self, label: str, value: str, answer: Answer, completer: Completer | None = None) -> None:
        """Ask for one line at the bottom."""

    def time_of(self, moment: datetime | None) -> str:
        """Format a time in the zone that the user chose."""

    async def go(self, place: Place, *, replace: bool = False) -> None:
        """Open a place."""

    async def in_background(self, read: Callable[[Views], Any]) -> Any:
        """Read something once. Only a worker may wait for it: keys would wait with any other caller."""

    async def prepare(self, read: Callable[[Views], T], show: Callable[[T], object]) -> None:
        """Read what a dialog needs and show it. Later keys wait for it only for a moment."""


class Page(Vertical):
    """One page of the monitor."""

    page: ClassVar[str] = ""
    argument: str = ""
    read_at: float | None = None
    """When what is shown was read, by the monotonic clock; None: not yet."""

    @property
    def monitor(self) -> Host:
        return cast(Host, self.app)

    def visit(self, argument: str) -> None:
        """Show another query or task; called before the page is read."""
        if argument != self.argument:
            self.read_at = None
        self.argument = argument

    def reading(self) -> Callable[[Views], Any]:
        """Return the function that reads what the page shows; it runs in a thread and must not touch the page."""
        raise NotImplementedError

    def show(self, found: Any) -> None:
        """Show what was read; never what was read for an earlier visit."""
        raise NotImplementedError

    def refused(self, error: OnerowError) -> None:
        """Show that the question was wrong: a query that does not parse, a task that does not exist."""
        grid = self.main_grid
        grid.empty = with_fix(error)
        grid.load([])

    def propose(self, operation: str, targets: Targets, **initial: str) -> None:
        """Show the dialog of an operation on tasks; say so if there are none."""
        if targets.number:
            self.monitor.propose(task_act(self.monitor.queue, operation, targets, initial=initial))
        else:
            self.monitor.say(f"no task here can be changed by {operation}", bad=True)

    def agreed(self) -> None:
        """The user agreed to an operation that the page proposed."""

    def search(self, text: str) -> None:
        """Move to the next line that contains a text."""
        grid = self.main_grid
        if text and not grid.find(text, grid.cursor + 1):
            self.monitor.say(f"no line has {text!r}", bad=True)

    def ask_search(self, prompt: Prompt) -> None:
        """Open the line in which the user types what to search for."""
        prompt.open("/", "", self.search)

    def pipeline_here(self) -> str:
        """The pipeline under the cursor; '' if there is none."""
        return ""

    @property
    def main_grid(self) -> Grid:
        return self.query(Grid).first()

    def focus_main(self) -> Widget:
        """Return the widget that has the focus when the page is opened."""
        return self.main_grid

    def time_of(self, moment: datetime | None) -> str:
        return self.monitor.time_of(moment)
