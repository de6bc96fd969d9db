"""P12: a JSON value is decoded equal to what was encoded, or rejected with a clear error before it is stored."""

import dataclasses
import enum
import math
from collections import OrderedDict
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onerow.core import values
from onerow.core.errors import BadInput, BadPayload
from tests.samples import json_values, texts


def nested(levels: int, kind: str = "list") -> Any:
    value: Any = [] if kind == "list" else {}
    for _ in range(levels - 1):
        value = [value] if kind == "list" else {"a": value, "b": 1}
    return value


@given(json_values)
def test_a_json_value_is_decoded_unchanged(value: Any) -> None:
    assert values.decode(values.encode(value)) == value


@given(json_values)
def test_a_tuple_is_decoded_as_a_list(value: Any) -> None:
    assert values.decode(values.encode((value, (value,)))) == [value, [value]]


@given(st.integers())
def test_an_integer_fits_into_64_bits_or_is_rejected(number: int) -> None:
    if -(2**63) <= number < 2**63:
        assert values.decode(values.encode({"n": number})) == {"n": number}
    else:
        with pytest.raises(BadPayload, match="beyond 64 bits"):
            values.encode({"n": number})


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**64 - 1, 2**64, 10**400])
def test_an_integer_beyond_64_bits_is_rejected_with_its_path(number: int) -> None:
    with pytest.raises(BadPayload, match=r"payload\.a\[1\] is an integer beyond 64 bits") as caught:
        values.encode({"a": [0, number]})
    assert caught.value.field == "payload.a[1]"


@given(st.floats())
def test_a_float_is_decoded_exactly_or_rejected(number: float) -> None:
    if math.isfinite(number):
        out = values.decode(values.encode([number]))[0]
        assert out == number
        assert math.copysign(1, out) == math.copysign(1, number)
    else:
        with pytest.raises(BadPayload, match=r"which JSON can't carry"):
            values.encode([number])


@pytest.mark.parametrize("text", ["\x00", "a\x00b", "\ud800", "\udfff x", "ok\udc80"])
@pytest.mark.parametrize("place", [lambda t: t, lambda t: [t], lambda t: {"a": {"b": t}}, lambda t: {t: 1}])
def test_text_that_databases_can_t_store_is_rejected_at_any_position(text: str, place: Any) -> None:
    with pytest.raises(BadPayload, match=r"NUL|lone surrogate"):
        values.encode(place(text))


@pytest.mark.parametrize("text", ["\\u0000", "\\x00", "\\", '"', "\x01", "\x7f", "\ufffe", "\U0010ffff", "한글", "é"])
def test_unusual_but_valid_text_is_kept(text: str) -> None:
    assert values.decode(values.encode({text: text})) == {text: text}


@pytest.mark.parametrize("key", [1, 1.5, None, True, (1, 2), b"a"])
def test_a_key_that_is_not_text_is_rejected(key: Any) -> None:
    with pytest.raises(BadPayload, match=r"key|not a JSON value"):
        values.encode({"outer": {key: "x"}})


def test_the_error_for_an_invalid_key_names_the_fix() -> None:
    with pytest.raises(BadPayload, match=r"payload\.outer has the key 1\nJSON keys are text: use '1'"):
        values.encode({"outer": {1: "x"}})


@pytest.mark.parametrize(
    "value",
    [
        b"bytes",
        {1, 2},
        object(),
        datetime(2026, 1, 1),
        Decimal("1.5"),
        UUID(int=1),
        1j,
        len,
        type,
        iter([]),
        enum.Enum("E", "A"),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("place", [lambda v: v, lambda v: {"a": [v]}], ids=["top", "nested"])
def test_a_value_that_is_not_json_is_rejected(value: Any, place: Any) -> None:
    with pytest.raises(BadPayload, match="not a JSON value"):
        values.encode(place(value))


async def fetch() -> None: ...


def test_the_error_for_a_value_that_is_not_json_names_the_fix() -> None:
    coroutine = fetch()
    for value, message in {
        object(): r"result is an object, which is not a JSON value\nuse text, numbers",
        1j: "result is a complex, ",
        coroutine: r"result is a coroutine, .*\nmake the handler async def, and await the call",
        KeyError("a"): r"result is a KeyError, .*\nraise it: raise KeyError\(…\)",
    }.items():
        with pytest.raises(BadPayload, match=message) as refused:
            values.encode(value, "result")
        assert refused.value.__suppress_context__, "the encoder's own error says less"
    coroutine.close()


class Colour(enum.StrEnum):
    RED = "red"
    LONG = "12345678901234567890"


class Level(enum.IntEnum):
    HIGH = 2**62


def test_subclasses_of_plain_types_are_treated_as_their_base_type() -> None:
    value = OrderedDict(a=Colour.RED, b=Level.HIGH, c=Colour.LONG)
    assert values.decode(values.encode({"x": value})) == {"x": {"a": "red", "b": 2**62, "c": Colour.LONG.value}}


@pytest.mark.parametrize("kind", ["list", "dict"])
def test_nesting_depth_is_limited(kind: str) -> None:
    deepest = nested(values.MAX_DEPTH, kind)
    assert values.decode(values.encode(deepest)) == deepest
    for levels in (values.MAX_DEPTH + 1, 500, 5_000, 200_000):
        with pytest.raises(BadPayload, match="nested too deeply"):
            values.encode(nested(levels, kind))


def test_a_wide_value_is_not_rejected_as_deep() -> None:
    wide = [{"a": [[1], [2]]} for _ in range(1_000)]
    assert values.decode(values.encode(wide)) == wide
    assert values.decode(values.encode("[{" * 500)) == "[{" * 500


def test_a_value_that_contains_itself_is_rejected() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(BadPayload):
        values.encode(loop)


def test_size_is_limited_in_bytes_and_the_error_names_the_fix() -> None:
    assert values.encode("x" * (values.MAX_VALUE - 2))
    with pytest.raises(BadPayload, match=r"1,000,001 bytes of JSON, at most 1,000,000 are stored\nstore it elsewhere"):
        values.encode("x" * (values.MAX_VALUE - 1))
    with pytest.raises(BadPayload):
        values.encode("한" * 400_000)
    with pytest.raises(BadPayload):
        values.encode("x" * 10_000_000)
    with pytest.raises(BadPayload, match="metadata") as caught:
        values.encode({"a": 1}, "metadata", limit=3)
    assert caught.value.field == "metadata"


class Job(msgspec.Struct):
    topic: str
    weight: float = 1.0


@dataclasses.dataclass
class Order:
    topic: str
    parts: list[Job]


def test_structs_and_dataclasses_become_plain_objects() -> None:
    assert values.decode(values.encode(Job("tides"))) == {"topic": "tides", "weight": 1.0}
    assert values.decode(values.encode(Order("x", [Job("y")]))) == {
        "topic": "x",
        "parts": [{"topic": "y", "weight": 1.0}],
    }
    with pytest.raises(BadPayload, match="weight"):
        values.encode(Job("tides", math.nan))
    with pytest.raises(BadPayload, match="NUL"):
        values.encode(Job("\x00"))


@given(st.dictionaries(texts, json_values, max_size=4), texts, json_values)
def test_with_key_sets_one_key_and_keeps_the_others(members: dict[str, Any], key: str, value: Any) -> None:
    text = values.with_key(values.encode(members), key, values.encode(value))
    assert values.decode(text) == members | {key: value}
    assert values.decode(values.without_keys(text, {key})) == {k: v for k, v in members.items() if k != key}
    assert set(values.members(text)) == set(members) | {key}


def test_texts_for_columns_are_validated() -> None:
    assert values.check_text("조수", "title", 10) == "조수"
    for wrong in ("\x00", "\ud800", "x" * 11, 5, None, b"x"):
        with pytest.raises(BadInput) as caught:
            values.check_text(wrong, "title", 10)  # type: ignore[arg-type]
        assert caught.value.field == "title"
    with pytest.raises(BadInput, match=r"user_id must be text, not int\nconvert it with str\(7\)") as caught:
        values.check_text(7, "user_id", 10)  # type: ignore[arg-type]
    assert not isinstance(caught.value, BadPayload)
    with pytest.raises(BadInput, match=r"user_id must be text, not list$"):
        values.check_text([], "user_id", 10)  # type: ignore[arg-type]
