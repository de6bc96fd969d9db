"""The keys of a page, as an overlay."""

from collections.abc import Sequence
from typing import ClassVar

from rich.table import Table
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from onerow.tui.keys import Key
from onerow.tui.places import TITLES


class Help(ModalScreen[None]):
    """Shows what each key does here."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q,enter", "dismiss", "close", show=False)]
    DEFAULT_CSS = """
    Help { align: center middle; }
    Help VerticalScroll { width: 76; max-width: 100%; max-height: 90%; height: auto; border: round $primary; background: $surface; padding: 0 1; }
    Help Static { height: auto; }
    """

    def __init__(self, page: str, keys: Sequence[Key]) -> None:
        super().__init__()
        self._page = page
        self._keys = keys

    def compose(self) -> ComposeResult:
        table = Table.grid(padding=(0, 2))
        table.add_column(style="bold", no_wrap=True)
        table.add_column()
        for key in sorted(self._keys, key=lambda key: key.action.startswith(("app.", "grid."))):
            table.add_row(key.shown, key.text)
        box = VerticalScroll(Static(table))
        box.border_title = f"Keys: {TITLES[self._page]}"
        box.border_subtitle = "Esc closes"
        yield box
