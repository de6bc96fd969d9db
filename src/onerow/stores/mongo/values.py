"""JSON ↔ BSON: a value is read back exactly as it was written, and is readable in the database (docs/adr/0015).

JSON objects are stored as documents, arrays as arrays, numbers as numbers. A JSON text that would change by that, or
grow too much, is stored as text in BSON's code type, which no JSON value has.
"""

import re
from typing import Any

import bson
import msgspec
from bson import json_util
from bson.code import Code
from bson.int64 import Int64

_decode = msgspec.json.Decoder().decode

# Drivers and tools interpret such a key as an operator or as a reference to another document.
_DOLLAR_KEY = re.compile(r'"\$(?:[^"\\]|\\.)*"\s*:')
_LONG = 64_000
_MOST_GROWTH = 1.5  # keeps a row of 8 MB of JSON below MongoDB's limit of 16 MB per document


def to_bson(text: str) -> Any:
    """Convert a JSON text to the value stored in MongoDB."""
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
    """Convert a value from `to_bson` back to its JSON text."""
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
    # A type that JSON lacks, written by another program: use MongoDB's extended JSON.
    return json_util.default(value)


_encode = msgspec.json.Encoder(enc_hook=_plain).encode
