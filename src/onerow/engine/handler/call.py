"""Calling a handler: its arguments from the row, its result into JSON; what can be prepared is prepared once."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from onerow.core import values
from onerow.core.errors import BadPayload
from onerow.core.plan import Plan
from onerow.core.task import Task
from onerow.pipelines.pipeline import Handler

_decode = msgspec.json.Decoder().decode


def decoder(declared: Any, what: str) -> Callable[[str | bytes], Any]:
    """A function from JSON text to the declared type; a mismatch is a BadPayload that says where."""
    if declared is Any or declared is None:
        return _as_it_is(what)
    if hasattr(declared, "model_validate_json"):

        def validate(text: str | bytes) -> Any:
            try:
                return declared.model_validate_json(text)
            except ValueError as error:
                raise BadPayload(f"{what} is not a valid {declared.__name__}: {error}", field=what) from None

        return validate
    typed = msgspec.json.Decoder(declared).decode

    def decode(text: str | bytes) -> Any:
        try:
            return typed(text)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadPayload(f"{what} is not a valid {_name(declared)}: {error}", field=what) from None

    return decode


def _as_it_is(what: str) -> Callable[[str | bytes], Any]:
    def decode(text: str | bytes) -> Any:
        try:
            return _decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadPayload(f"{what} is not JSON: {error}", field=what) from None

    return decode


class Call:
    """A handler bound to the way its arguments are made."""

    def __init__(self, handler: Handler, plan: Plan | None) -> None:
        self.handler = handler
        self.function = handler.function
        self._makers: list[tuple[str, bool, str, Callable[[Any], Any]]] = []
        for parameter in handler.parameters:
            what = "payload" if parameter.source in ("payload", "items") else f"result of {parameter.name}"
            self._makers.append((parameter.name, parameter.keyword, parameter.source, decoder(parameter.type, what)))
        self.former_names = _former_names(plan)
        self.wants_context = any(source == "context" for _, _, source, _ in self._makers)
        self.takes_items = any(source == "items" for _, _, source, _ in self._makers)
        # Most handlers take the payload as it is: no loop for those.
        self._payload_only = [(keyword, source) for _, keyword, source, _ in self._makers] == [(False, "payload")]
        self._payload = self._makers[0][3] if self._payload_only else _decode

    def payload_of(self, task: Task) -> Any:
        """The payload of one item of a batch; raises BadPayload for what doesn't fit its annotation."""
        return self._makers[0][3](task.payload_json)

    def arguments(self, task: Task, context: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and named arguments; raises BadPayload for what doesn't fit its annotation."""
        if self._payload_only:
            return (self._payload(task.payload_json),), {}
        results: dict[str, msgspec.Raw] | None = None
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for name, keyword, source, decode in self._makers:
            value: Any
            if source == "payload":
                value = decode(task.payload_json)
            elif source == "context":
                value = context
            else:
                if results is None:
                    results = values.members(task.results_json)
                raw = next(
                    (results[known] for known in (name, *self.former_names.get(name, ())) if known in results), None
                )
                value = None if raw is None else decode(bytes(raw))
            if keyword:
                named[name] = value
            else:
                positional.append(value)
        return tuple(positional), named


def check_payload(declared: Any, payload: Any, required: Sequence[str] = ()) -> str:
    """The payload's JSON text, of the declared type; without the type, at least with the fields it can't do without."""
    text = values.encode(payload, "payload")
    if declared is not None and declared is not Any:
        decoder(declared, "payload")(text)
    elif required:
        plain = values.to_plain(payload, "payload")
        for name in required:
            if not isinstance(plain, dict) or name not in plain:
                raise BadPayload(f"payload needs the field {name!r}", field=f"payload.{name}")
    return text


def _former_names(plan: Plan | None) -> dict[str, tuple[str, ...]]:
    return {} if plan is None else {phase.name: phase.renamed_from for phase in plan.phases if phase.renamed_from}


def _name(declared: Any) -> str:
    return getattr(declared, "__name__", str(declared))
