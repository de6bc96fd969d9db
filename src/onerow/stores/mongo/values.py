"""JSON ↔ BSON: what went in comes out equal, and a person can read it in between (docs/adr/0020).

A JSON value is stored as itself: objects as documents, arrays as arrays, numbers as numbers. A text that would not
survive that, or grow too much by it, is stored as it stands, in BSON's type for code, which no JSON value ever has.
"""

import re
from typing import Any

import bson
import msgspec
from bson import json_util
from bson.code import Code
from bson.int64 import Int64

_decode = msgspec.json.Decoder().decode

# Drivers and tools take such a key for an operator, or for a reference to another document.
_DOLLAR_KEY = re.compile(r'"\$(?:[^"\\]|\\.)*"\s*:')
_LONG = 64_000
_MOST_GROWTH = 1.5  # so that a row of 8 MB of JSON stays below the 16 MB that a document may have


def to_bson(text: str) -> Any:
    """The value of a JSON text as MongoDB keeps it."""
    if text == "{}":
        return {}
    if text == "[]":
        return []
    if text == "null":
        return None
    if '"$' in text and _DOLLAR_KEY.search(text):
        return Code(text)
    value = _decode(text)
    if len(text) > _LONG and _size(value) > _MOST_GROWTH * len(text.encode()):
        return Code(text)
    return value


def to_json(value: Any) -> str:
    """The JSON text of what `to_bson` made."""
    if value is None:
        return "null"
    if not value:
        kind = type(value)
        if kind is dict:
            return "{}"
        if kind is list:
            return "[]"
    if type(value) is Code:
        return str(value)
    return _encode(value).decode()


def _size(value: Any) -> int:
    return len(bson.encode({"": value}))


def _plain(value: Any) -> Any:
    if isinstance(value, Int64):
        return int(value)
    if isinstance(value, Code):
        return str(value)
    # Someone else wrote it, of a type that JSON doesn't have: as MongoDB's own tools show it.
    return json_util.default(value)


_encode = msgspec.json.Encoder(enc_hook=_plain).encode
