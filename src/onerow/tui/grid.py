"""A list of lines in columns, with a cursor that stays on its line when the list is read again."""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from onerow.tui.cells import Cell, fit, safe, wrapped
from onerow.tui.keys import KEYS
from onerow.tui.layout import GAP, Column, widths_of


class Line(NamedTuple):
    """One line: a key that identifies it, and its cells."""

    key: str
    cells: Sequence[Cell]
    heading: bool = False
    marked: bool = False


def _bindings() -> list[BindingType]:
    return [
        Binding(key.keys, key.action.removeprefix("grid."), key.text, show=False)
        for key in KEYS
        if key.action.startswith("grid.")
    ]


class _AboutGrid(Message):
    """A message of a list about its line with this key."""

    def __init__(self, grid: "Grid", key: str = "") -> None:
        super().__init__()
        self.grid = grid
        self.key = key

    @property
    def control(self) -> "Grid":
        return self.grid


class Grid(ScrollView, can_focus=True):
    """A list; only the lines in view are drawn."""

    BINDINGS: ClassVar[list[BindingType]] = _bindings()
    COMPONENT_CLASSES: ClassVar[set[str]] = {"grid--head", "grid--cursor", "grid--heading", "grid--marked"}
    DEFAULT_CSS = """
    Grid { height: 1fr; background: $background; color: $foreground; scrollbar-size-vertical: 1; overflow-x: hidden; }
    Grid > .grid--head { color: $text-muted; text-style: bold; }
    Grid > .grid--heading { color: $primary; text-style: bold; }
    Grid > .grid--marked { text-style: bold reverse; }
    Grid > .grid--cursor { background: $primary 40%; text-style: bold; }
    Grid:ansi > .grid--cursor { text-style: reverse; }
    """

    cursor = reactive(0, repaint=False)  # its two lines are drawn, not the list

    class Opened(_AboutGrid):
        """The user opened a line."""

    class Moved(_AboutGrid):
        """The cursor is on another line."""

    class Edge(_AboutGrid):
        """The user moved beyond the first (-1) or the last line (1)."""

        def __init__(self, grid: "Grid", step: int) -> None:
            super().__init__(grid)
            self.step = step

    def __init__(self, columns: Sequence[Column], *, empty: str = "", head: bool = True, id: str | None = None) -> None:
        super().__init__(id=id)
        self.columns = tuple(columns)
        self.empty = empty
        self.lines: list[Line] = []
        self._shown: tuple[list[Line], tuple[Column, ...], str] | None = None
        self._texts: list[list[tuple[str, str]]] = []
        self._natural: list[int] = [0] * len(self.columns)
        self._head = 1 if head else 0
        self._styles: dict[str, Style] = {}  # computing one costs as much as drawing a line
        self._widths: tuple[int, list[int]] = (-1, [])  # of the columns, for a width of the list

    # ── content ──

    def load(self, lines: Sequence[Line], columns: Sequence[Column] | None = None) -> None:
        """Replace the lines; the cursor stays on the line with its key, else on its position."""
        key = self.key
        shown = (list(lines), self.columns if columns is None else tuple(columns), self.empty)
        if shown == self._shown and self.lines == shown[0]:
            return  # nothing to draw
        before, self._shown = self._shown, shown
        # At the top new lines stay visible; further down the line under the cursor does.
        top = round(self.scroll_offset.y)
        follow = not self.lines or 0 < top <= self.cursor < top + self.rows_in_view
        if columns is not None:
            self.columns = tuple(columns)
        self.lines = list(lines)
        self._texts = [[safe(cell) for cell in line.cells] for line in self.lines]
        natural, self._natural = self._natural, [0] * len(self.columns)
        for line, texts in zip(self.lines, self._texts, strict=True):
            if not line.heading:
                for number, (text, _) in enumerate(texts):
                    self._natural[number] = max(self._natural[number], cell_len(text))
        position = next((n for n, line in enumerate(self.lines) if line.key == key and key), self.cursor)
        self.cursor = min(position, max(0, len(self.lines) - 1))
        self.virtual_size = Size(self.size.width, len(self.lines) + self._head)
        if follow:
            self.move_to(self.cursor)
        self._widths = (-1, [])
        if before is None or before[1:] != shown[1:] or natural != self._natural or len(before[0]) != len(self.lines):
            self.refresh()
            return
        for number, (old, new) in enumerate(zip(before[0], self.lines, strict=True)):
            if old != new:
                self._redraw(number)

    def begin_at(self, position: int) -> None:
        """Expect other lines, with the cursor on a position; what is drawn stays until they are loaded."""
        self.lines = []
        self.cursor = position

    def _redraw(self, number: int) -> None:
        """Draw one line again, if it is in view."""
        y = number + self._head - round(self.scroll_offset.y)
        if self._head <= y < self.size.height:
            self.refresh(Region(0, y, self.size.width, 1))

    @property
    def key(self) -> str:
        """The key of the line under the cursor; '' if the list is empty."""
        return self.lines[self.cursor].key if self.cursor < len(self.lines) else ""

    @property
    def rows_in_view(self) -> int:
        return max(1, self.size.height - self._head)

    def move_to(self, position: int) -> None:
        """Move the cursor and keep it in view."""
        if not self.lines:
            return
        self.cursor = min(max(position, 0), len(self.lines) - 1)
        top = round(self.scroll_offset.y)
        if self.cursor < top:
            self.scroll_to(y=self.cursor, animate=False)
        elif self.cursor >= top + self.rows_in_view:
            self.scroll_to(y=self.cursor - self.rows_in_view + 1, animate=False)

    def find(self, text: str, start: int) -> bool:
        """Move to the next line that contains the text; return whether there is one."""
        wanted = text.casefold()
        for offset in range(len(self.lines)):
            position = (start + offset) % len(self.lines)
            if any(wanted in cell.casefold() for cell, _ in self._texts[position]):
                self.move_to(position)
                return True
        return False

    # ── keys and mouse ──

    def action_move(self, step: int) -> None:
        before = self.cursor
        self.move_to(self.cursor + step)
        if self.cursor == before:
            self.post_message(self.Edge(self, 1 if step > 0 else -1))

    def action_page(self, step: int) -> None:
        self.action_move(step * max(1, self.rows_in_view - 1))

    def action_first(self) -> None:
        self.move_to(0)

    def action_last(self) -> None:
        self.move_to(len(self.lines) - 1)

    def action_open(self) -> None:
        if self.key:
            self.post_message(self.Opened(self, self.key))

    def on_click(self, event: events.Click) -> None:
        self.focus()
        position = event.y - self._head + round(self.scroll_offset.y)
        if event.y < self._head or not 0 <= position < len(self.lines):
            return
        same = position == self.cursor
        self.move_to(position)
        if same or event.chain > 1:
            self.action_open()

    def watch_cursor(self, before: int, after: int) -> None:
        self._redraw(before)
        self._redraw(after)
        if self.key:
            self.post_message(self.Moved(self, self.key))

    # ── drawing ──

    def on_resize(self) -> None:
        self.virtual_size = Size(self.size.width, len(self.lines) + self._head)
        self.move_to(self.cursor)

    def watch_has_focus(self, has_focus: bool) -> None:
        super().watch_has_focus(has_focus)
        self._redraw(self.cursor)

    def notify_style_update(self) -> None:
        self._styles.clear()
        super().notify_style_update()

    def _style(self, part: str = "") -> Style:
        """The style of the list, or of one of its parts."""
        if (style := self._styles.get(part)) is None:
            style = self.get_component_rich_style(f"grid--{part}") if part else self.rich_style
            self._styles[part] = style
        return style

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        base = self._style()
        if not self.lines and self.empty:
            lines = wrapped(safe(self.empty)[0], width - 2)
            row = y - min(self._head, self.size.height - 1)
            text = fit(f" {lines[row]}" if 0 <= row < len(lines) else "", width)
            return Strip([Segment(text, base + Style(dim=True))], width)
        if self._widths[0] != width:
            self._widths = (width, widths_of(self.columns, self._natural, width - 1))
        widths = self._widths[1]
        if self._head and y == 0:
            head = self._style("head")
            texts = [(column.title, "") for column in self.columns]
            return self._strip(texts, widths, base + head, width)
        row = y - self._head + round(self.scroll_offset.y)
        if row >= len(self.lines):
            return Strip([Segment(" " * width, base)], width)
        line, texts = self.lines[row], self._texts[row]
        style = base
        if line.heading:
            style = base + self._style("heading")
        if row == self.cursor and self.has_focus:
            style += self._style("cursor")
        if line.heading:
            return Strip([Segment(fit(" " + " ".join(text for text, _ in texts), width), style)], width)
        return self._strip(texts, widths, style, width, marked=line.marked)

    def _strip(
        self, texts: Sequence[tuple[str, str]], widths: Sequence[int], style: Style, width: int, *, marked: bool = False
    ) -> Strip:
        segments = [Segment("●" if marked else " ", style)]
        left = width - 1
        first = True
        for column, (text, own), wide in zip(self.columns, texts, widths, strict=False):
            if not wide:
                continue
            gap = 0 if first else min(GAP, left)
            if gap:
                segments.append(Segment(" " * gap, style))
                left -= gap
            first = False
            wide = min(wide, left)
            segments.append(Segment(fit(text, wide, right=column.right), style + Style.parse(own) if own else style))
            left -= wide
        if left > 0:
            segments.append(Segment(" " * left, style))
        return Strip(segments, width)
