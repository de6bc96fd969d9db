"""The line at the bottom for a query, a search or a place to go to, with completions above it."""

from collections.abc import Awaitable, Callable
from functools import partial
from inspect import isawaitable

from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.widgets import Input, Static

from onerow.engine.output.terminal import neutral
from onerow.engine.views import Completions

Answer = Callable[[str], Awaitable[None] | None]
Completer = Callable[[str, int], Awaitable[Completions]]
_SHOWN = 12


class Prompt(Vertical):
    """One line of input; Enter answers, Tab completes, Esc closes it."""

    DEFAULT_CSS = """
    Prompt { height: auto; display: none; background: $panel; }
    Prompt Horizontal { height: 1; }
    Prompt #label { width: auto; height: 1; text-style: bold; padding: 0 1; }
    Prompt Input { height: 1; border: none; padding: 0; width: 1fr; background: $panel; }
    Prompt Input:focus { border: none; }
    Prompt #completions { height: 1; padding: 0 1; color: $text-muted; }
    """

    class Closed(Message):
        """The line was closed."""

    def __init__(self) -> None:
        super().__init__()
        self._answer: Answer = lambda text: None
        self._completer: Completer | None = None
        self._found: Completions | None = None
        self._chosen = -1
        self._asked = 0

    def compose(self) -> ComposeResult:
        yield Static("", id="completions", markup=False)
        with Horizontal():
            yield Static("", id="label", markup=False)
            yield Input(compact=True)

    def open(self, label: str, value: str, answer: Answer, completer: Completer | None = None) -> None:
        """Show the line with a value; call `answer` with what was typed."""
        self._answer, self._completer = answer, completer
        self.query_one("#label", Static).update(label)
        self.query_one("#completions").display = completer is not None
        line = self.query_one(Input)
        with line.prevent(Input.Changed):
            line.value = value
        line.cursor_position = len(value)
        self.display = True
        self.screen.set_focus(line)  # at once: the next key belongs to the line
        self._ask()

    def close(self) -> None:
        """Hide the line; the monitor gives the focus back to its page."""
        self.display = False
        self.post_message(self.Closed())

    @on(Input.Submitted)
    async def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.close()
        found = self._answer(event.value.strip())
        if isawaitable(found):
            await found

    # ── completions ──

    @on(Input.Changed)
    def _changed(self) -> None:
        self._ask()

    def _ask(self) -> None:
        self._found, self._chosen = None, -1
        self._asked += 1
        if self._completer is not None:
            # A function and not a coroutine: a completion that was overtaken before it began is then never made.
            call = partial(self._complete, self._asked, self._completer)
            self.run_worker(call, exclusive=True, exit_on_error=False)  # type: ignore[arg-type]  # a union that mypy can't solve

    async def _complete(self, number: int, completer: Completer) -> None:
        line = self.query_one(Input)
        found = await completer(line.value, line.cursor_position)
        if number == self._asked:  # nothing was typed since
            self._found = found
            self._show()

    def _show(self) -> None:
        text = Text(no_wrap=True, overflow="ellipsis")
        items = self._found.items if self._found is not None else []
        for position, item in enumerate(items[:_SHOWN]):
            text.append(neutral(item.text), "reverse" if position == self._chosen else "cyan")
            text.append("  ")
        chosen = items[max(self._chosen, 0)] if items else None
        if chosen is not None and chosen.hint:
            text.append(neutral(f"({chosen.hint})"), "dim")
        self.query_one("#completions", Static).update(text)

    def on_key(self, event: events.Key) -> None:
        if event.key not in ("tab", "shift+tab"):
            return
        event.stop()
        event.prevent_default()
        found = self._found
        if found is None or not found.items:
            return
        step = 1 if event.key == "tab" else -1
        count = min(len(found.items), _SHOWN)
        line = self.query_one(Input)
        before = found.items[self._chosen].text if self._chosen >= 0 else None
        end = found.end if before is None else found.start + len(before)
        self._chosen = (self._chosen + step) % count if self._chosen >= 0 or step > 0 else count - 1
        text = found.items[self._chosen].text
        with line.prevent(Input.Changed):
            line.value = line.value[: found.start] + text + line.value[end:]
        line.cursor_position = found.start + len(text)
        if count == 1:
            self._ask()
        else:
            self._show()
