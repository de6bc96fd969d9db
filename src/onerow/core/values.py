"""JSON values as text: a value is decoded equal to what was encoded, or rejected before it is stored (P12)."""

from collections.abc import Mapping
from types import CoroutineType
from typing import Any

import msgspec

from onerow.core.errors import BadInput, BadPayload

MAX_VALUE = 1_000_000
"""The maximum size of one payload, result or metadata, in bytes."""
MAX_ROW = 8_000_000
"""The maximum size of a row, in bytes."""
MAX_DEPTH = 100

_encoder = msgspec.json.Encoder()
_decode = msgspec.json.Decoder().decode
_decode_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

# Only a text with a long run of digits may contain an integer beyond 64 bits, and only such a text is checked value by
# value. To find it, every digit is translated to 0, which costs a tenth of a regular expression.
_ZEROS = bytes(ord("0") if chr(byte).isdigit() and byte < 128 else ord(" ") for byte in range(256))
_LONG_NUMBER = b"0" * 19
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1


def encode(value: Any, field: str = "payload", limit: int = MAX_VALUE) -> str:
    """Return the JSON text of a value; raise BadPayload with the path of a value that JSON can't represent."""
    if value is None:
        return "null"
    plain = value if type(value) in _PLAIN else to_plain(value, field)
    try:
        raw = _encoder.encode(plain)
        if len(raw) > 2 * MAX_DEPTH and _is_deep(plain, raw):  # each level has two brackets
            raise RecursionError
        if _decode(raw) != plain or (b"\\" in raw and b"\\u0000" in raw) or _LONG_NUMBER in raw.translate(_ZEROS):
            _walk(plain, field, 0)
    except BadPayload:
        raise
    except RecursionError:
        raise BadPayload(f"{field} is nested too deeply: more than {MAX_DEPTH} levels", field=field) from None
    except Exception as error:
        try:
            _walk(plain, field, 0)
        except BadPayload as found:  # with the path of the value that the encoder rejected
            raise found from None
        raise BadPayload(f"{field} is not a JSON value: {error}", field=field) from None
    if len(raw) > limit:
        raise BadPayload(
            f"{field} is {len(raw):,} bytes of JSON, at most {limit:,} are stored",
            fix="store it elsewhere and pass a path or key instead",
            field=field,
        )
    return raw.decode()


_PLAIN = frozenset({dict, list, str, int, float, bool, tuple})


def to_plain(value: Any, field: str) -> Any:
    """Convert a dataclass, Struct or pydantic model to plain JSON values; return other values unchanged."""
    if type(value) in _PLAIN or value is None:
        return value
    dump = getattr(type(value), "model_dump", None)
    if dump is not None:
        return dump(value, mode="json")
    if isinstance(value, msgspec.Struct) or hasattr(type(value), "__dataclass_fields__"):
        try:
            return msgspec.to_builtins(value, str_keys=True)
        except Exception as error:
            raise BadPayload(f"{field} of type {type(value).__name__} is not JSON: {error}", field=field) from None
    return value


def _is_deep(value: Any, raw: bytes) -> bool:
    """Whether a value has more than MAX_DEPTH levels; a value with few brackets is not walked."""
    if raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return False
    level = [value]
    for _ in range(MAX_DEPTH):
        inner = (each.values() if isinstance(each, dict) else each for each in level)
        level = [item for items in inner for item in items if isinstance(item, dict | list | tuple)]
        if not level:
            return False
    return True


def _walk(value: Any, path: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise BadPayload(f"{path[:80]}… is nested too deeply: more than {MAX_DEPTH} levels", field=path)
    # A subclass (an OrderedDict, a StrEnum) is treated as its base type.
    kind = next(
        (plain for plain in (bool, str, int, float, dict, list, tuple) if isinstance(value, plain)), type(value)
    )
    if kind is str:
        _check_text(value, path)
    elif kind is bool or value is None:
        return
    elif kind is int:
        if not _INT_MIN <= value <= _INT_MAX:
            raise BadPayload(f"{path} is an integer beyond 64 bits", fix="pass it as text", field=path)
    elif kind is float:
        if value != value or value in (float("inf"), float("-inf")):
            raise BadPayload(f"{path} is {value}, which JSON can't carry", fix="use None or text", field=path)
    elif kind is dict:
        for key, item in value.items():
            if not isinstance(key, str):
                raise BadPayload(f"{path} has the key {key!r}", fix=f"JSON keys are text: use {str(key)!r}", field=path)
            _check_text(key, f"{path}: a key")
            _walk(item, f"{path}.{key}", depth + 1)
    elif kind is list or kind is tuple:
        for index, item in enumerate(value):
            _walk(item, f"{path}[{index}]", depth + 1)
    else:
        raise BadPayload(
            f"{path} is {'an' if kind.__name__[0] in 'aeiouAEIOU' else 'a'} {kind.__name__}, which is not a JSON value",
            fix=_fix_for(value),
            field=path,
        )


def _fix_for(value: Any) -> str:
    if type(value) is CoroutineType:
        return "make the handler async def, and await the call"
    if isinstance(value, BaseException):
        return f"raise it: raise {type(value).__name__}(…)"
    return "use text, numbers, booleans, None, lists and dicts (a time as ISO text)"


def _check_text(text: str, path: str) -> None:
    if "\x00" in text:
        raise BadPayload(f"{path} holds a NUL character, which databases can't store", fix="remove it", field=path)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadPayload(
            f"{path} holds a lone surrogate, which is not text", fix="decode it properly", field=path
        ) from None


def check_text(text: str, field: str, limit: int) -> str:
    """Return a text for a text column (id, title, user); raise BadInput if it can't be stored."""
    if not isinstance(text, str):
        raise BadInput(
            f"{field} must be text, not {type(text).__name__}",
            fix=f"convert it with str({text!r})" if isinstance(text, int) else "",
            field=field,
        )
    _check_text(text, field)
    if len(text) > limit:
        raise BadPayload(
            f"{field} has {len(text):,} characters, at most {limit:,} are stored", fix="shorten it", field=field
        )
    return text


def decode(text: str) -> Any:
    """Decode the text that `encode` returned."""
    return _decode(text)


def with_key(object_text: str, key: str, value_text: str) -> str:
    """Return the text of a JSON object with one key set; the other values stay unchanged."""
    if object_text == "{}":
        return "{" + _encoder.encode(key).decode() + ":" + value_text + "}"
    members: dict[str, Any] = _decode_raw(object_text)
    members[key] = msgspec.Raw(value_text.encode())
    return _encoder.encode(members).decode()


def without_keys(object_text: str, keys: Mapping[str, Any] | set[str] | frozenset[str]) -> str:
    """Return the text of a JSON object without some of its keys."""
    if object_text == "{}":
        return object_text
    members = {key: raw for key, raw in _decode_raw(object_text).items() if key not in keys}
    return _encoder.encode(members).decode()


def members(object_text: str) -> dict[str, msgspec.Raw]:
    """Return the members of a JSON object, with their values as JSON text."""
    return _decode_raw(object_text)
