"""Decode JSON text to the types that handlers and steps declare."""

import typing
from collections.abc import Callable
from typing import Any

import msgspec

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
