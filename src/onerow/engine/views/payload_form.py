"""The form of a payload: its fields, from the published JSON Schema, and what is wrong with a value."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from onerow.core import values
from onerow.core.errors import BadInput, BadPayload
from onerow.core.json_schema import Problem, problems, resolved
from onerow.core.plan import Plan
from onerow.core.times import parse_time

_AT = re.compile(r"(.*?)(?: - at `\$\.?(.*)`)?", re.DOTALL)
_SHOWN_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "pattern")


class FormField(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a payload."""

    name: str
    type: str  # string, integer, number, boolean, array, object, or any
    required: bool
    nullable: bool = False
    default: Any = None
    has_default: bool = False
    enum: list[Any] | None = None
    description: str = ""
    format: str = ""  # date-time, date, uuid …
    bounds: dict[str, Any] = {}  # minimum, maxLength, pattern …
    fields: "list[FormField]" = []  # of an object with declared fields
    item_type: str = ""  # of an array


class PayloadForm(msgspec.Struct, frozen=True):
    """The fields of a pipeline's payload; without fields it takes any JSON."""

    pipeline: str
    typed: bool
    fields: list[FormField]
    json_schema: dict[str, Any] | None = None


def build_form(plan: Plan) -> PayloadForm:
    """Return the form of a pipeline's payload. The fields of `wait_until` phases are times."""
    root = plan.payload_schema
    if root is None:
        times = [phase.field for phase in plan.timed if phase.field]
        fields = [
            FormField(name=name, type="string", required=False, nullable=True, format="date-time") for name in times
        ]
        return PayloadForm(plan.name, False, fields)
    return PayloadForm(plan.name, True, _fields(root, root, 0), root)


def _fields(root: Mapping[str, Any], schema: Any, depth: int) -> list[FormField]:
    body = resolved(root, schema)
    required = body.get("required", ())
    return [
        _field(root, name, each, name in required, depth) for name, each in body.get("properties", {}).items()
    ] if depth < 5 else []  # fmt: skip


def _field(root: Mapping[str, Any], name: str, given: Any, required: bool, depth: int) -> FormField:
    outer = resolved(root, given)
    alternatives = [resolved(root, each) for each in outer.get("anyOf", outer.get("oneOf", ()))]
    concrete = [each for each in alternatives if each.get("type") != "null"]
    schema = {**concrete[0], **outer} if len(concrete) == 1 else outer
    kinds = schema.get("type", "any" if alternatives or not schema else "")
    kinds = [kinds] if isinstance(kinds, str) else list(kinds)
    enum = schema.get("enum", [schema["const"]] if "const" in schema else None)
    shown = [kind for kind in kinds if kind != "null"]
    type_ = shown[0] if len(shown) == 1 and shown[0] else "string" if enum and isinstance(enum[0], str) else "any"
    return FormField(
        name=name,
        type=type_,
        required=required,
        nullable="null" in kinds or len(concrete) < len(alternatives),
        default=schema.get("default"),
        has_default="default" in schema,
        enum=None if enum is None else list(enum),
        description=str(schema.get("description", "")),
        format=str(schema.get("format", "")),
        bounds={key: schema[key] for key in _SHOWN_BOUNDS if key in schema},
        fields=_fields(root, schema, depth + 1) if type_ == "object" else [],
        item_type=str(resolved(root, schema.get("items", {})).get("type", "any")) if type_ == "array" else "",
    )


def check_value(plan: Plan, value: Any, by_code: Callable[[Any], object] | None) -> list[Problem]:
    """Return what is wrong with a payload, by field: by the schema, then by the code if it is at hand.

    by_code: raises BadPayload for a payload that the code refuses.
    """
    try:
        plain = values.decode(values.encode(value, "payload"))
    except BadPayload as error:
        return [Problem("", str(error))]
    found = [] if plan.payload_schema is None else problems(plan.payload_schema, plain)
    for phase in plan.timed:
        moment = plain.get(phase.field) if isinstance(plain, dict) else None
        if moment is not None and not any(each.field == phase.field for each in found):
            try:
                parse_time(moment, phase.field)
            except BadInput as error:
                found.append(Problem(phase.field, str(error)))
    if not found and by_code is not None:
        try:
            by_code(value)
        except BadPayload as error:
            said = _AT.fullmatch(str(error))
            assert said is not None
            found.append(Problem((said[2] or "").replace("[", ".").replace("]", ""), said[1]))
    return found
