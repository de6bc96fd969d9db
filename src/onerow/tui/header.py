"""The two lines around a page: the store, its state and the pages above; the keys of the page below."""

from typing import NamedTuple

from rich.cells import cell_len
from rich.text import Text

from onerow.cli import formatting
from onerow.core.errors import OnerowError, StoreMoved
from onerow.engine.output.terminal import neutral
from onerow.tui.keys import PAGES, keys_of
from onerow.tui.places import TITLES
from onerow.tui.text_block import TextBlock, clickable

_FRESH = 2.5  # seconds
_NUMBERED = [page for page in PAGES if page != "task"]


class State(NamedTuple):
    """What the header says."""

    store: str
    page: str
    age: float | None  # seconds since the shown data was read; None: not read yet
    live: bool = True
    read_only: bool = False
    error: OnerowError | None = None  # why the last read failed
    doing: str = ""  # an operation that runs


class Header(TextBlock):
    """Store, state of the reads, and the pages with their numbers."""

    DEFAULT_CSS = "Header { height: 1; background: $panel; color: $foreground; } Header:ansi { text-style: reverse; }"

    def show(self, state: State) -> None:
        """Show a state."""
        self.tell(header_text(state, self.size.width or 80))


def header_text(state: State, width: int) -> Text:
    """Return the header in one line: the state, then as much of the rest as fits."""
    text = Text(" ", no_wrap=True, overflow="ellipsis", end="")
    if state.error is not None:
        for_ = "" if state.age is None else f"; shown: {formatting.span(state.age)} old"
        where, _, reason = str(state.error).partition(": ")
        said = reason if reason and state.store.endswith(where) else str(state.error)  # which store is known
        if isinstance(state.error, StoreMoved):  # never the same store again
            text.append(neutral(f"✗ quit and start the monitor again{for_}: {said}"), "bold red")
        else:
            text.append(neutral(f"✗ store unavailable{for_}, retrying: {said}"), "bold red")
        return text
    if state.age is None:
        text.append("… reading", "yellow")
    elif not state.live:
        text.append(f"‖ stopped, {formatting.span(state.age)} old", "bold yellow")
    else:
        fresh = state.age < _FRESH
        text.append("● live" if fresh else f"● {formatting.span(state.age)} old", "green" if fresh else "bold yellow")
    if state.read_only:
        text.append(" read-only", "yellow")
    if state.doing:
        text.append(f"  ▶ {neutral(state.doing)}", "bold cyan")
    pages = next(
        (found for names in (True, False) if (found := _pages(state.page, names)).cell_len + text.cell_len < width),
        Text(),
    )
    store = short_store(state.store)
    if text.cell_len + cell_len(store) + pages.cell_len + 3 <= width:
        text.append(f"  {store}", "dim")
    text.append(" " * max(1, width - text.cell_len - pages.cell_len - 1))
    text.append_text(pages)
    return text


def _pages(here: str, names: bool) -> Text:
    """Return the numbers of the pages, with all names or with that of the page that is open."""
    pages = Text()
    for number, page in enumerate(_NUMBERED, start=1):
        pages.append(" ")
        pages.append(f"{number}", clickable("dim", page))
        if names or page == here:
            pages.append(" ")
            pages.append(TITLES[page], clickable("bold reverse" if page == here else "", page))
    return pages


def short_store(url: str) -> str:
    """Return the kind of a store and the last part of its address: sqlite queue.db, postgresql db.example.org/jobs."""
    kind, _, rest = url.partition("://")
    rest = rest.partition("?")[0].rpartition("@")[2].rstrip("/")
    last = rest.rpartition("/")[2] if kind.startswith("sqlite") else rest
    return neutral(f"{kind} {last}".strip())


class KeyLine(TextBlock):
    """The most used keys of the page."""

    DEFAULT_CSS = "KeyLine { height: 1; background: $panel; color: $foreground; }"

    def show(self, page: str, *, read_only: bool) -> None:
        """Show the keys of a page."""
        self._page = (page, read_only)
        self.tell(key_line(page, self.size.width or 80, read_only=read_only))

    def on_resize(self) -> None:
        if page := getattr(self, "_page", None):
            self.show(page[0], read_only=page[1])


def key_line(page: str, width: int, *, read_only: bool) -> Text:
    """Return the hints that fit in a line, the one for all keys always among them."""
    hints = [key for key in keys_of(page, read_only=read_only) if key.hint]
    # The keys of the page first, then those of every page; if not all fit, the least needed are left out.
    shown = sorted(hints, key=lambda key: key.action.startswith("app."))
    while len(shown) > 1 and sum(len(f" {key.shown} {key.hint} ") for key in shown) > width:
        shown.remove(next((key for key in reversed(shown) if key.action != "app.keys"), shown[-1]))
    text = Text(no_wrap=True, overflow="ellipsis", end="")
    for key in shown:
        text.append(f" {key.shown}", "bold")
        text.append(f" {key.hint} ")
    return text
