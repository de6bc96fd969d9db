"""Decode JSON text to the types that handlers and steps declare, and check payloads against them."""

import typing
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from onerow.core import values
from onerow.core.errors import BadPayload
from onerow.pipelines.signature import is_typed

_decode = msgspec.json.Decoder().decode


def decoder(declared: Any, what: str) -> Callable[[str | bytes], Any]:
    """Return a function that decodes JSON text to the declared type and raises BadPayload on a mismatch."""
    if declared is Any or declared is None:
        return _untyped(what)
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
            raise BadPayload(f"{what} is not a valid {_type_name(declared)}: {error}", field=what) from None

    return decode


def check_payload(declared: Any, payload: Any, required: Sequence[str] = ()) -> str:
    """Return the payload as JSON text; raise BadPayload unless it has the declared type or the required fields."""
    text = values.encode(payload, "payload")
    if declared is not None and declared is not Any:
        decoder(declared, "payload")(text)
    elif required:
        plain = values.to_plain(payload, "payload")
        for name in required:
            if not isinstance(plain, dict) or name not in plain:
                raise BadPayload(f"payload needs the field {name!r}", field=f"payload.{name}")
    return text


def _untyped(what: str) -> Callable[[str | bytes], Any]:
    def decode(text: str | bytes) -> Any:
        try:
            return _decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadPayload(f"{what} is not JSON: {error}", field=what) from None

    return decode


def decode_result(function: Callable[..., Any], text: str, what: str) -> Any:
    """Decode the stored result of a step to the return type of its function, if that is a model or a container."""
    try:
        declared = typing.get_type_hints(function).get("return", Any)
    except Exception:  # a partial, a callable object, or an annotation that can't be resolved here
        declared = Any
    if not is_typed(declared) and not typing.get_args(declared):
        declared = Any
    try:
        decode = decoder(declared, what)
    except TypeError:  # not a type of JSON values
        decode = decoder(Any, what)
    return decode(text)


def _type_name(declared: Any) -> str:
    return getattr(declared, "__name__", str(declared))
