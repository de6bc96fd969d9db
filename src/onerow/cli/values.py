"""Parse payloads from the command line."""

import json
import sys
from pathlib import Path
from typing import Any

from onerow.core.errors import BadInput


def payload(fields: tuple[str, ...], text: str | None) -> Any:
    """Return a payload from FIELD=VALUE words (each value is JSON if it parses, else text) or from JSON text."""
    if fields and text is not None:
        raise BadInput("FIELD=VALUE words and --payload both set the payload", fix="give one of them", field="payload")
    if text is not None:
        return _json(_text(text))
    if not fields:
        return None
    found: dict[str, Any] = {}
    for word in fields:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise BadInput(f"{word!r} is not FIELD=VALUE", fix="for other payloads use --payload JSON", field="payload")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def _text(given: str) -> str:
    if given == "-":
        return sys.stdin.read()
    if given.startswith("@"):
        try:
            return Path(given[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"can't read {given[1:]}: {error}", field="payload") from None
    return given


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadInput(f"the payload is not JSON ({error})", fix="quote it for your shell, or write FIELD=VALUE", field="payload") from None  # fmt: skip
