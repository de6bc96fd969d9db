"""Decode JSON text to the types that handlers and steps declare, and check payloads against them."""

import typing
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from onerow.core import values
from onerow.core.caller import line_of_caller
from onerow.core.errors import BadPayload
from onerow.core.suggest import did_you_mean
from onerow.pipelines.signature import fields, is_typed, payload_schema

_decode = msgspec.json.Decoder().decode
_reported: set[tuple[type, str]] = set()  # keys of payloads that no field takes
_MOST_REPORTED = 100  # because keys may come from anywhere


def decoder(declared: Any, what: str) -> Callable[[str | bytes], Any]:
    """Return a function that decodes JSON text to the declared type and raises BadPayload on a mismatch."""
    if declared is Any or declared is None:
        return _untyped(what)
    if hasattr(declared, "model_validate_json"):

        def validate(text: str | bytes) -> Any:
            try:
                return declared.model_validate_json(text)
            except ValueError as error:
                raise BadPayload(f"{what} is not a valid {declared.__name__}: {_mistakes(error)}", field=what) from None

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
        if type(payload) is dict and (known := _fields_of(declared)) is not None and not payload.keys() <= known:
            _warn_of(payload.keys() - known, known, declared)
    elif required:
        plain = values.to_plain(payload, "payload")
        for name in required:
            if not isinstance(plain, dict) or name not in plain:
                raise BadPayload(f"payload needs the field {name!r}", field=f"payload.{name}")
    return text


def _fields_of(declared: Any) -> frozenset[str] | None:
    """Return the keys that a dataclass, Struct or TypedDict takes; None for other types (a pydantic model has rules)."""
    return _listed(declared) if is_typed(declared) and not hasattr(declared, "model_validate") else None


@lru_cache
def _listed(declared: type) -> frozenset[str] | None:
    return fields(payload_schema(declared)[0])


def _warn_of(keys: Iterable[str], known: Iterable[str], declared: type) -> None:
    """Warn once of each key that no field takes. No error, because a client may know a newer version of the type."""
    for key in keys:
        if (declared, key) not in _reported and len(_reported) < _MOST_REPORTED:
            _reported.add((declared, key))
            hint = did_you_mean(key, known)
            said = f"the payload has the key {key!r}, which {declared.__name__} does not have; {hint}"
            warnings.warn_explicit(said, UserWarning, *line_of_caller())


def _mistakes(error: Any) -> str:
    """Return what pydantic found, in one line and without the values."""
    if not hasattr(error, "errors"):
        return str(error)
    found = [(".".join(str(part) for part in each["loc"]), each["msg"]) for each in error.errors()]
    return "; ".join(f"{place}: {what}" if place else what for place, what in found)


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
