"""Validation by JSON Schema agrees with the types that the schema was made from."""

from datetime import datetime
from typing import Any, Literal

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from onerow.core.json_schema import problems, resolved
from tests.samples import json_values


class Circle(msgspec.Struct, tag="circle"):
    radius: float


class Square(msgspec.Struct, tag="square"):
    side: int


class Everything(msgspec.Struct):
    text: str
    number: int | None = None
    shapes: list[Circle | Square] = []
    pair: tuple[int, str] | None = None
    by_name: dict[str, bool] = {}
    choice: Literal["a", "b", 3] = "a"
    inner: "Everything | None" = None


SCHEMA = msgspec.json.schema(Everything)
_parts = st.fixed_dictionaries(
    {},
    optional={
        "text": st.text(max_size=3) | json_values,
        "number": st.integers() | json_values,
        "shapes": st.lists(
            st.fixed_dictionaries({"type": st.sampled_from(["circle", "square", "x"])}, optional={"radius": st.just(1.5), "side": json_values}),
            max_size=2,
        ),
        "pair": st.just([1, "a"]) | json_values,
        "by_name": st.dictionaries(st.text(max_size=2), st.booleans() | json_values, max_size=2),
        "choice": st.sampled_from(["a", "b", 3, "c", True]),
        "inner": st.none() | st.fixed_dictionaries({"text": st.just("x") | st.integers()}),
    },
)  # fmt: skip


@given(_parts | json_values)
def test_the_schema_accepts_what_the_type_accepts(value: Any) -> None:
    try:
        msgspec.convert(value, Everything)
    except msgspec.ValidationError:
        valid = False
    else:
        valid = True
    found = problems(SCHEMA, value)
    assert (found == []) == valid, found


def test_every_problem_is_reported_at_its_path() -> None:
    value = {"shapes": [{"type": "circle", "radius": "1"}], "pair": [1, 2], "by_name": {"x": 1}, "inner": {"text": 1}}
    assert {problem.field for problem in problems(SCHEMA, value)} == {
        "text", "shapes.0.radius", "pair.1", "by_name.x", "inner.text",
    }  # fmt: skip


def test_formats_bounds_and_unknown_keywords() -> None:
    schema = {
        "type": "object",
        "properties": {
            "at": {"type": "string", "format": "date-time"},
            "id": {"type": "string", "format": "uuid"},
            "n": {"type": "integer", "minimum": 1, "exclusiveMaximum": 5, "odd": True},
            "s": {"type": "string", "maxLength": 2, "pattern": "^a"},
            "l": {"type": "array", "minItems": 1, "maxItems": 2},
        },
        "additionalProperties": False,
    }
    good = {
        "at": datetime(2026, 1, 1).isoformat() + "Z",
        "id": "00000000-0000-0000-0000-000000000000",
        "n": 4,
        "s": "ab",
        "l": [1],
    }
    assert problems(schema, good) == []
    bad = {"at": "x", "id": "y", "n": 5, "s": "bcd", "l": [], "z": 1}
    assert {problem.field for problem in problems(schema, bad)} == {"at", "id", "n", "s", "l", "z"}
    assert problems({"pattern": "("}, "a") == []


def test_references_that_lead_nowhere_or_in_circles_end() -> None:
    circle = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}
    assert resolved(circle, circle) == {} or "$defs" in resolved(circle, circle)
    assert problems(circle, 1) == []
    assert problems({"$ref": "#/nowhere"}, 1) == []
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    nested = {"$defs": {"a": {"type": ["array", "integer"], "items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"}
    assert [problem.message for problem in problems(nested, deep)] == ["is nested too deeply"]
