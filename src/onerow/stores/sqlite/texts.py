"""Two SQL functions for what SQLite can't say: contained whatever the case, and the value at a dotted path."""

import sqlite3
from typing import Any

import msgspec

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def register(connection: sqlite3.Connection) -> None:
    """Make onerow_has(text, part) and onerow_at(json, path) known to a connection."""
    connection.create_function("onerow_has", 2, has, deterministic=True)
    connection.create_function("onerow_at", 2, text_at, deterministic=True)


def has(text: str | None, part: str) -> bool:
    """Whether a text contains a part that is casefolded already."""
    return text is not None and (part in text or part in text.casefold())


def text_at(text: str, path: str) -> str | None:
    """The value at a dotted path as text: strings as they are, everything else as JSON; None: nothing is there."""
    value: Any = _decode(text)
    for step in path.split("."):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value if isinstance(value, str) else _encode(value).decode()
