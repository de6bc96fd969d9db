"""Validation of a value by a JSON Schema, as far as the schemas of payload types use it. Unknown keywords are ignored."""

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any
from uuid import UUID

import msgspec

_DEEPEST = 50
_MOST_PROBLEMS = 100
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "object": (dict,),
    "array": (list,), "null": (type(None),),
}  # fmt: skip
_WORDS = {
    "string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false",
    "object": "an object", "array": "a list", "null": "null",
}  # fmt: skip


class Problem(msgspec.Struct, frozen=True):
    """What is wrong with a value, at a dotted path ('' for the whole value)."""

    field: str
    message: str


def problems(schema: Mapping[str, Any], value: Any) -> list[Problem]:
    """Return what is wrong with a value, at most one hundred problems; empty if it is valid."""
    found: list[Problem] = []
    for problem in _Validator(schema).check(schema, value, "", 0):
        found.append(problem)
        if len(found) == _MOST_PROBLEMS:
            break
    return found


def resolved(root: Mapping[str, Any], schema: Any) -> Mapping[str, Any]:
    """Return a schema with its $ref, if it has one, replaced by the definition in `root`."""
    for _ in range(_DEEPEST):
        if not isinstance(schema, Mapping):
            return {}
        ref = schema.get("$ref")
        if not isinstance(ref, str):
            return schema
        found: Any = root
        for part in ref.removeprefix("#").strip("/").split("/"):
            found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
        rest = {key: each for key, each in schema.items() if key != "$ref"}
        schema = {**found, **rest} if isinstance(found, Mapping) else rest
    return {}


class _Validator:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def check(self, schema: Any, value: Any, at: str, depth: int) -> Iterator[Problem]:
        if schema is False:
            yield Problem(at, "is not allowed")
            return
        schema = resolved(self._root, schema)
        if depth > _DEEPEST:
            yield Problem(at, "is nested too deeply")
            return
        kinds = schema.get("type")
        kinds = [kinds] if isinstance(kinds, str) else list(kinds or ())
        if kinds and not any(_is(kind, value) for kind in kinds):
            yield Problem(at, f"must be {' or '.join(_WORDS.get(kind, kind) for kind in kinds)}")
            return
        yield from self._scalar(schema, value, at)
        if isinstance(value, dict):
            yield from self._object(schema, value, at, depth)
        if isinstance(value, list):
            yield from self._array(schema, value, at, depth)
        yield from self._combined(schema, value, at, depth)

    def _scalar(self, schema: Mapping[str, Any], value: Any, at: str) -> Iterator[Problem]:
        if "enum" in schema and not any(_same(value, each) for each in schema["enum"]):
            yield Problem(at, f"must be one of {', '.join(map(_spell, schema['enum']))}")
        if "const" in schema and not _same(value, schema["const"]):
            yield Problem(at, f"must be {_spell(schema['const'])}")
        if isinstance(value, str):
            yield from _text(schema, value, at)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield from _number(schema, value, at)

    def _object(self, schema: Mapping[str, Any], value: dict[str, Any], at: str, depth: int) -> Iterator[Problem]:
        known = schema.get("properties", {})
        for name in schema.get("required", ()):
            if name not in value:
                yield Problem(_path(at, name), "is required")
        others = schema.get("additionalProperties", True)
        for name, each in value.items():
            if name in known:
                yield from self.check(known[name], each, _path(at, name), depth + 1)
            elif others is False:
                yield Problem(_path(at, name), "is not a field of this type")
            elif isinstance(others, Mapping):
                yield from self.check(others, each, _path(at, name), depth + 1)

    def _array(self, schema: Mapping[str, Any], value: list[Any], at: str, depth: int) -> Iterator[Problem]:
        if len(value) < schema.get("minItems", 0):
            yield Problem(at, f"must have at least {schema['minItems']} items")
        if len(value) > schema.get("maxItems", len(value)):
            yield Problem(at, f"must have at most {schema['maxItems']} items")
        first: Sequence[Any] = schema.get("prefixItems", ())
        for number, each in enumerate(value):
            inner = first[number] if number < len(first) else schema.get("items", True)
            if inner is not True:
                yield from self.check(inner, each, _path(at, str(number)), depth + 1)

    def _combined(self, schema: Mapping[str, Any], value: Any, at: str, depth: int) -> Iterator[Problem]:
        for each in schema.get("allOf", ()):
            yield from self.check(each, value, at, depth + 1)
        for key in ("anyOf", "oneOf"):
            alternatives = [list(self.check(each, value, at, depth + 1)) for each in schema.get(key, ())]
            if alternatives and all(alternatives):
                # The alternative that comes closest says most: its problems lie deepest.
                yield from max(alternatives, key=lambda found: (max(len(each.field) for each in found), -len(found)))


def _text(schema: Mapping[str, Any], value: str, at: str) -> Iterator[Problem]:
    if len(value) < schema.get("minLength", 0):
        least = schema["minLength"]
        yield Problem(at, "must not be empty" if least == 1 else f"must have at least {least} characters")
    if len(value) > schema.get("maxLength", len(value)):
        yield Problem(at, f"must have at most {schema['maxLength']} characters")
    if "pattern" in schema and not _matches(schema["pattern"], value):
        yield Problem(at, f"must match {schema['pattern']}")
    try:
        match schema.get("format"):
            case "date-time":
                datetime.fromisoformat(value)
            case "date":
                date.fromisoformat(value)
            case "uuid":
                UUID(value)
    except ValueError:
        yield Problem(at, f"is no {schema['format']}")


_BOUNDS: tuple[tuple[str, Callable[[float, float], bool], str], ...] = (
    ("minimum", operator.ge, "at least"),
    ("maximum", operator.le, "at most"),
    ("exclusiveMinimum", operator.gt, "more than"),
    ("exclusiveMaximum", operator.lt, "less than"),
)


def _number(schema: Mapping[str, Any], value: float, at: str) -> Iterator[Problem]:
    for key, holds, words in _BOUNDS:
        if key in schema and not holds(value, schema[key]):
            yield Problem(at, f"must be {words} {schema[key]}")


def _matches(pattern: str, value: str) -> bool:
    try:
        return re.search(pattern, value) is not None
    except re.error:  # another dialect of regular expressions: the code checks it
        return True


def _is(kind: str, value: Any) -> bool:
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    expected = _TYPES.get(kind)
    if expected is None:
        return True
    return isinstance(value, expected) and (kind == "boolean" or not isinstance(value, bool))


def _same(value: Any, other: Any) -> bool:
    return type(value) is type(other) and bool(value == other)


def _spell(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _path(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name
