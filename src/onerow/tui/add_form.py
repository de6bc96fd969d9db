"""The form that adds a task: a field for each field of the payload's declared type, checked as the user types."""

import json
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Label, Select, Static

from onerow.core.errors import BadInput, with_fix
from onerow.core.plan import Plan
from onerow.core.times import parse_moment
from onerow.engine.output.terminal import neutral
from onerow.engine.queue.queue import Queue
from onerow.engine.views.payload_form import FormField
from onerow.tui.acts import Act, Report, Values, parse_priority
from onerow.tui.payload_fields import first_text, form_fields, hint_of, payload_of

_TERMS = {
    "title": ("title", "made by the pipeline"),
    "user": ("user", "the owner"),
    "run_at": ("run at", "now, +10m or a time"),
    "priority": ("priority", "-100 to 100, lower first"),
    "unique": ("unique key", ""),
    "limit_key": ("limit key", ""),
}
_OPTIONS = {
    "title": "--title",
    "user": "--user",
    "run_at": "--run-at",
    "priority": "--priority",
    "unique": "--unique",
    "limit_key": "--limit-key",
}


class AddForm(ModalScreen[Act | None]):
    """Asks for a new task; answers with the operation that adds it, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "refuse", "cancel", show=False),
        Binding("ctrl+s", "agree", "add", show=False),
    ]
    DEFAULT_CSS = """
    AddForm { align: center middle; }
    AddForm > VerticalScroll { width: 84; max-width: 100%; height: auto; max-height: 95%; border: round $primary; background: $surface; padding: 0 1; }
    AddForm .field { height: 1; }
    AddForm .field Label { width: 20; color: $text-muted; }
    AddForm .field Input { width: 1fr; height: 1; border: none; background: $boost; padding: 0 1; }
    AddForm .required Label { color: $foreground; text-style: bold; }
    AddForm #fields { height: auto; }
    AddForm #terms { height: auto; margin: 1 0 0 0; }
    AddForm Select { height: auto; }
    AddForm #command { color: $success; height: auto; margin: 1 0 0 0; }
    AddForm #problem { color: $error; height: auto; min-height: 1; }
    AddForm #buttons { height: 1; align-horizontal: right; }
    AddForm Button { height: 1; border: none; min-width: 12; margin: 0 0 0 2; }
    AddForm Button:focus { text-style: bold reverse; }
    """

    def __init__(self, queue: Queue, plans: Mapping[str, Plan], pipeline: str) -> None:
        super().__init__()
        self._queue = queue
        self._plans = plans
        self._pipeline = pipeline if pipeline in plans else sorted(plans)[0]
        self._fields: list[FormField] = []

    def compose(self) -> ComposeResult:
        box = VerticalScroll()
        box.border_title = "Add a task"
        with box:
            names = [(neutral(name), name) for name in sorted(self._plans)]
            yield Select(names, value=self._pipeline, allow_blank=False, id="pipeline", compact=True)
            yield Vertical(id="fields")
            with Vertical(id="terms"):
                for name, (label, hint) in _TERMS.items():
                    yield _line(name, label, hint, "", f"term-{name}")
            yield Static(id="command", markup=False)
            yield Static(id="problem", markup=False)
            with Horizontal(id="buttons"):
                yield Button("Cancel (Esc)", id="refuse", compact=True)
                yield Button("Add (Ctrl-S)", id="agree", compact=True, variant="primary")

    async def on_mount(self) -> None:
        await self._choose(self._pipeline)

    @on(Select.Changed)
    async def _chosen(self, event: Select.Changed) -> None:
        if isinstance(event.value, str) and event.value != self._pipeline:
            await self._choose(event.value)

    async def _choose(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self._fields = form_fields(self._plans[pipeline])
        box = self.query_one("#fields", Vertical)
        await box.remove_children()
        await box.mount_all(
            _line(
                field.name, field.name, hint_of(field), first_text(field), f"payload-{number}", required=field.required
            )
            for number, field in enumerate(self._fields)
        )
        first = box.query(Input).first()
        first.focus()
        self._tell()

    # ── what was typed ──

    def _payload(self) -> Any:
        lines = self.query_one("#fields", Vertical).query(Input)
        return payload_of(
            self._plans[self._pipeline],
            self._fields,
            {field.name: line.value for field, line in zip(self._fields, lines, strict=True)},
        )

    def _terms(self) -> dict[str, str]:
        found = {name: self.query_one(f"#term-{name}", Input).value.strip() for name in _TERMS}
        return {name: value for name, value in found.items() if value}

    def _problem(self) -> str:
        try:
            self._payload()
            terms = self._terms()
            if "run_at" in terms:
                parse_moment(terms["run_at"], datetime.now(UTC))
            if "priority" in terms:
                parse_priority(terms["priority"])
        except BadInput as error:
            return with_fix(error)
        return ""

    def command(self) -> str:
        """Return the command that adds the same task."""
        try:
            payload = self._payload()
        except BadInput:
            payload = None
        words = ["onerow", "add", self._pipeline]
        words += ["--payload", json.dumps(payload, ensure_ascii=False)] if payload is not None else []
        return shlex.join(
            [*words, *(word for name, value in self._terms().items() for word in (_OPTIONS[name], value))]
        )

    @on(Input.Changed)
    def _tell(self) -> None:
        self.query_one("#command", Static).update(Text(f"$ {neutral(self.command())}"))
        self.query_one("#problem", Static).update(Text(neutral(self._problem())))

    # ── answers ──

    @on(Input.Submitted)
    def _submitted(self) -> None:
        self.action_agree()

    @on(Button.Pressed)
    def _pressed(self, event: Button.Pressed) -> None:
        if event.button.id == "agree":
            self.action_agree()
        else:
            self.action_refuse()

    def action_refuse(self) -> None:
        self.dismiss(None)

    def action_agree(self) -> None:
        if self._problem():
            self.app.bell()
            return
        queue, pipeline, payload, terms, command = (
            self._queue, self._pipeline, self._payload(), self._terms(), self.command()
        )  # fmt: skip

        def perform(values: Values, report: Report) -> str:
            run_at = parse_moment(terms["run_at"], queue.store.now()) if "run_at" in terms else None
            task = queue.add(
                pipeline,
                payload,
                title=terms.get("title"),
                user_id=terms.get("user", ""),
                run_at=run_at,
                priority=parse_priority(terms.get("priority", "0")),
                unique=terms.get("unique"),
                limit_key=terms.get("limit_key", ""),
            )
            return f"added {task.task_id}"

        self.dismiss(Act("add", f"Add a task to {pipeline}?", lambda values: command, perform))


def _line(name: str, label: str, hint: str, value: str, widget_id: str, *, required: bool = False) -> Horizontal:
    line = Input(value, placeholder=neutral(hint), id=widget_id, name=name, compact=True)
    return Horizontal(Label(Text(neutral(label))), line, classes="field required" if required else "field")
