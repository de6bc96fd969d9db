"""The dialog of an operation: what it does to how many tasks, its inputs, and the command that does the same."""

from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Label, Static

from onerow.engine.output.terminal import neutral
from onerow.tui.acts import Act

_COUNT = "typed-count"


class Dialog(ModalScreen[Act | None]):
    """Asks before an operation; answers with the operation and its values, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "refuse", "cancel", show=False),
        Binding("ctrl+s", "agree", "do it", show=False),
        Binding("y", "agree", "do it", show=False),
        Binding("n", "refuse", "cancel", show=False),
        Binding("left,right", "other_button", "other button", show=False),
        Binding("up", "app.focus_previous", "previous field", show=False),
        Binding("down", "app.focus_next", "next field", show=False),
    ]
    DEFAULT_CSS = """
    Dialog { align: center middle; }
    Dialog > VerticalScroll { width: 78; max-width: 100%; height: auto; max-height: 95%; border: round $primary; background: $surface; padding: 0 1; }
    Dialog.final > VerticalScroll { border: round $error; }
    Dialog Label { width: 100%; height: auto; }
    Dialog .field { height: auto; }
    Dialog .field Label { width: 30; color: $text-muted; }
    Dialog .field Input { width: 1fr; height: 1; border: none; background: $boost; padding: 0 1; }
    Dialog #command { color: $success; width: 100%; height: auto; margin: 1 0 0 0; }
    Dialog #problem { color: $error; width: 100%; height: auto; min-height: 1; }
    Dialog #buttons { height: 1; align-horizontal: right; }
    Dialog Button { height: 1; border: none; min-width: 12; margin: 0 0 0 2; }
    Dialog Button:focus { text-style: bold reverse; }
    """

    def __init__(self, act: Act) -> None:
        super().__init__(classes="final" if act.final else "")
        self._act = act

    def compose(self) -> ComposeResult:
        act = self._act
        box = VerticalScroll(id="box", can_focus=False)  # Tab goes through the fields and buttons only
        box.border_title = Text(neutral(act.verb))
        with box:
            yield Label(Text(neutral(act.question), style="bold"))
            if act.remark:
                yield Label(Text(neutral(act.remark), style="dim"))
            for field in act.fields:
                with Horizontal(classes="field"):
                    yield Label(Text(f"{field.label} "))
                    yield Input(field.value, id=f"field-{field.name}", name=field.name, compact=True)
            if act.typed is not None:
                with Horizontal(classes="field"):
                    yield Label(Text(f"type {act.typed} to confirm "))
                    yield Input(id=_COUNT, compact=True)
            yield Static(id="command", markup=False)
            yield Static(id="problem", markup=False)
            with Horizontal(id="buttons"):
                yield Button("Cancel (Esc)", id="refuse", compact=True)
                yield Button("Do it (y)" if not self._has_inputs else "Do it (Ctrl-S)", id="agree", compact=True, variant="error" if act.final else "primary")  # fmt: skip

    @property
    def _has_inputs(self) -> bool:
        return bool(self._act.fields) or self._act.typed is not None

    def on_mount(self) -> None:
        for field in self._act.fields:
            self._act.values.setdefault(field.name, field.value)
        self._tell()
        inputs = list(self.query(Input))
        required = [each for each, field in zip(inputs, self._act.fields, strict=False) if field.required]
        if required:
            required[0].focus()
        elif self._act.typed is not None:
            self.query_one(f"#{_COUNT}", Input).focus()
        else:
            # Of a final operation, Enter alone must not do it.
            self.query_one("#refuse" if self._act.final else "#agree", Button).focus()

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        if event.input.name:
            self._act.values[event.input.name] = event.value
        self._tell()

    @on(Input.Submitted)
    def _submitted(self) -> None:
        if self._act.final and self._act.typed is None:
            self.query_one("#agree", Button).focus()
        else:
            self.action_agree()

    def _problem(self) -> str:
        if (found := self._act.problem()) or self._act.typed is None:
            return found
        typed = self.query_one(f"#{_COUNT}", Input).value.strip().replace(",", "")
        return "" if typed == str(self._act.typed) else f"type the number of tasks: {self._act.typed}"

    def _tell(self) -> None:
        command = self._act.command()
        self.query_one("#command", Static).update(Text(f"$ {neutral(command)}" if command else ""))
        self.query_one("#problem", Static).update(Text(neutral(self._problem())))

    @on(Button.Pressed)
    def _pressed(self, event: Button.Pressed) -> None:
        if event.button.id == "agree":
            self.action_agree()
        else:
            self.action_refuse()

    def action_agree(self) -> None:
        if self._problem():
            self.app.bell()
            self._tell()
        else:
            self.dismiss(self._act)

    def action_refuse(self) -> None:
        self.dismiss(None)

    def action_other_button(self) -> None:
        other = "#agree" if self.focused is not None and self.focused.id == "refuse" else "#refuse"
        self.query_one(other, Button).focus()
