"""JSON values as lines of a folding tree."""

import json
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from onerow.engine.output.terminal import neutral_json

_OPEN_UP_TO = 1
_MOST_ITEMS = 500
_SUMMARY = 60


class TreeLine(NamedTuple):
    """One line; `path` identifies it, and `folds` says whether it has lines below that can be folded."""

    path: str
    depth: int
    name: str
    value: str
    style: str
    folds: bool
    open: bool


def tree_lines(name: str, value: Any, toggled: Collection[str]) -> list[TreeLine]:
    """Return the lines of a value; the first levels are open, except those that the user toggled."""
    return list(_lines(name, name, value, 0, toggled))


def _lines(path: str, name: str, value: Any, depth: int, toggled: Collection[str]) -> Iterator[TreeLine]:
    items = _items(value)
    if items is None:
        text, style = _leaf(value)
        yield TreeLine(path, depth, name, text, style, False, False)
        return
    is_open = (depth <= _OPEN_UP_TO) != (path in toggled)
    yield TreeLine(path, depth, name, _summary(value, is_open), "dim", bool(items), is_open and bool(items))
    if not is_open:
        return
    for key, item in items[:_MOST_ITEMS]:
        yield from _lines(f"{path}.{key}", key, item, depth + 1, toggled)
    if len(items) > _MOST_ITEMS:
        yield TreeLine(f"{path}.…", depth + 1, "…", f"{len(items) - _MOST_ITEMS:,} more", "dim", False, False)


def _items(value: Any) -> list[tuple[str, Any]] | None:
    if isinstance(value, dict):
        return [(str(key), item) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return [(str(number), item) for number, item in enumerate(value)]
    return None


def _summary(value: Any, is_open: bool) -> str:
    kind = f"{{{len(value)}}}" if isinstance(value, dict) else f"[{len(value)}]"
    if is_open or not value:
        return kind
    text = _dumped(value)
    return f"{kind} {text[:_SUMMARY]}{'…' if len(text) > _SUMMARY else ''}"


def _leaf(value: Any) -> tuple[str, str]:
    style = "green" if isinstance(value, str) else "cyan" if isinstance(value, int | float) else "magenta"
    return _dumped(value), style


def _dumped(value: Any) -> str:
    return neutral_json(json.dumps(value, ensure_ascii=False, default=str))
