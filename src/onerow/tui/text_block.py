"""A text of some lines that is drawn only when it changes, and laid out only when its height may change."""

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text
from textual import events
from textual.message import Message
from textual.widgets import Static


class TextBlock(Static):
    """A text; `tell` costs nothing if it is the text that is shown."""

    class Chosen(Message):
        """A part of the text was clicked."""

        def __init__(self, block: "TextBlock", part: str) -> None:
            self.block = block
            self.part = part
            super().__init__()

        @property
        def control(self) -> "TextBlock":
            return self.block

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._told: tuple[Text, int] | None = None

    def tell(self, text: Text) -> None:
        """Show a text."""
        width = self.size.width
        before, self._told = self._told, (text, width)
        if before is not None and before == (text, width):
            return
        height = _height(self._told)
        self.update(text, layout=before is None or height is None or height != _height(before))

    def on_click(self, event: events.Click) -> None:
        if part := event.style.meta.get("part"):
            self.post_message(self.Chosen(self, part))


def clickable(style: str, part: str) -> Style:
    """Return a style whose text, when it is clicked, names a part."""
    return Style.parse(style) + Style(meta={"part": part})


def _height(drawn: tuple[Text, int]) -> int | None:
    """Return the number of lines of a text; None if one is wider than the label, so that it may be folded."""
    text, width = drawn
    lines = text.plain.split("\n")
    return len(lines) if all(cell_len(line) <= width for line in lines) else None
