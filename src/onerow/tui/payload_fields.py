"""What was typed into the form of a payload, as a payload; the fields and the check come from the read model."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from onerow.core.errors import BadInput
from onerow.core.plan import Plan
from onerow.engine.views.payload_form import FormField, build_form, check_value

WHOLE = FormField(name="payload", type="any", required=False, default={}, has_default=True, description="JSON")
"""The one field of a payload without a declared type: the whole payload as JSON."""


def form_fields(plan: Plan) -> list[FormField]:
    """Return the fields of the form of a pipeline's payload."""
    form = build_form(plan)
    return form.fields if form.typed and form.fields else [WHOLE]


def hint_of(field: FormField) -> str:
    """Return what can be typed into a field."""
    if field.enum:
        return " or ".join(map(str, field.enum))
    kind = field.format or field.type
    bounds = ", ".join(f"{name} {value}" for name, value in field.bounds.items())
    return "; ".join(part for part in (kind if kind != "any" else "JSON", field.description, bounds) if part)


def first_text(field: FormField) -> str:
    """Return the text with which a field begins: its default."""
    if not field.has_default or field.default is None:
        return ""
    if field.type == "string" and isinstance(field.default, str):
        return field.default
    return json.dumps(field.default, ensure_ascii=False)


def payload_of(plan: Plan, fields: Sequence[FormField], typed: Mapping[str, str]) -> Any:
    """Return the payload that was typed; raise BadInput if the definition does not accept it."""
    if list(fields) == [WHOLE]:
        payload = _value(WHOLE, typed.get(WHOLE.name, "").strip() or "null")
    else:
        payload = {
            field.name: _value(field, text)
            for field in fields
            if (text := typed.get(field.name, first_text(field))).strip()
        }
    if problems := check_value(plan, payload, None):
        first = problems[0]
        raise BadInput(f"{first.field}: {first.message}" if first.field else first.message, field=first.field)
    return payload


_WANTED = {"integer": "a whole number", "number": "a number", "boolean": "true or false"}


def _value(field: FormField, text: str) -> Any:
    if field.type == "string":
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        if field.enum and text in field.enum:
            return text
        if (wanted := _WANTED.get(field.type)) is not None:
            raise BadInput(f"{field.name} must be {wanted}, not {text!r}", field=field.name) from None
        raise BadInput(
            f"{field.name} is not JSON ({error})", fix="write text in double quotes", field=field.name
        ) from None
