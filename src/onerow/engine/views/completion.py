"""Completion of queries: keys, names and values at the cursor. Values come from definitions and some recent tasks."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from onerow.core.failure import ERROR_CLASSES
from onerow.core.filters import text_at
from onerow.core.plan import Plan
from onerow.core.query import CONDITIONS, KEYS, ORDERS, STATUSES
from onerow.engine.output.masking import MASK
from onerow.pipelines.signature import fields

MOST_COMPLETIONS = 20
_LONGEST_VALUE = 80
_DEEPEST_PATH = 4
_MOST_PATHS = 200
_AGES = ("<10m", "<1h", "<1d", ">1h", ">1d")
_OPERATORS = {"OR": "either condition", "NOT": "negates the next condition"}
_LISTS = ("status", "phase")  # keys that take several values with commas
_TOKEN_END = re.compile(r"[\s()]")
_PIPELINE = re.compile(r'(?:^|[\s(])pipeline:"?([^\s")]+)')


class Completion(msgspec.Struct, frozen=True):
    """A text that can stand at the cursor."""

    text: str  # replaces the range of Completions
    kind: Literal["key", "value", "operator"]
    hint: str = ""


class Completions(msgspec.Struct, frozen=True):
    """Completions of the characters from `start` to `end` of a query, best first."""

    start: int
    end: int
    items: list[Completion]


class Sample(msgspec.Struct, frozen=True):
    """Masked values of a recent task, from which values are completed."""

    user: str
    key: str
    signal: str
    payload: Any
    metadata: Any


class Names(msgspec.Struct, frozen=True):
    """Where names come from; each is read only if it is needed."""

    plans: Callable[[], Mapping[str, Plan]]
    workers: Callable[[], Iterable[str]]
    recent: Callable[[], list[Sample]]


def complete(text: str, cursor: int, names: Names) -> Completions:
    """Return completions of the word at the cursor."""
    cursor = max(0, min(cursor, len(text)))
    start, end = _word(text, cursor)
    word = text[start:cursor]
    key, colon, value = word.partition(":")
    if not colon:
        found = [*_keys(word, names), *_operators(word)]
        return Completions(start, end, found[:MOST_COMPLETIONS])
    start += len(key) + 1
    if key in _LISTS and "," in value:
        start += value.rindex(",") + 1
        value = value[value.rindex(",") + 1 :]
    pipeline = found_name[1] if (found_name := _PIPELINE.search(text)) else ""
    matching = _ranked(value.replace('"', ""), _values(key, pipeline, names))
    return Completions(start, end, [Completion(_quoted(each), "value", hint) for each, hint in matching])


def _word(text: str, cursor: int) -> tuple[int, int]:
    """Return start and end of the word at the cursor, without a negating '-'; a quoted part belongs to one word."""
    start = 0
    quoted = False
    for number, character in enumerate(text[:cursor]):
        if character == '"':
            quoted = not quoted
        elif not quoted and _TOKEN_END.match(character):
            start = number + 1
    if text[start : start + 1] == "-" and start < cursor:
        start += 1
    end = cursor
    while end < len(text) and (text[end] != '"' if quoted else not _TOKEN_END.match(text[end])):
        end += 1
    return start, end + 1 if quoted and end < len(text) else end


def _keys(word: str, names: Names) -> Iterator[Completion]:
    known = {key: hint for key, hint in KEYS.items() if not key.endswith("…")}
    column, dot, _ = word.partition(".")
    if dot and column in ("payload", "metadata"):
        known = dict.fromkeys(_paths(column, names), "")
    elif word:
        known |= {f"{column}.": KEYS[f"{column}.…"] for column in ("payload", "metadata")}
    for each, hint in _ranked(word, known.items()):
        yield Completion(each if each.endswith(".") else f"{each}:", "key", hint)


def _operators(word: str) -> Iterator[Completion]:
    for operator, hint in _OPERATORS.items():
        if word and operator.lower().startswith(word.lower()):
            yield Completion(operator, "operator", hint)


def _values(key: str, pipeline: str, names: Names) -> Iterable[tuple[str, str]]:
    plans = names.plans
    match key:
        case "status":
            return _bare(STATUSES)
        case "pipeline":
            return _bare(plans())
        case "phase":
            chosen = {name: plan for name, plan in plans().items() if pipeline in ("", name)}
            return [(phase.name, name) for name, plan in chosen.items() for phase in plan.phases]
        case "error":
            return _bare(ERROR_CLASSES)
        case "worker":
            return _bare(names.workers())
        case "is":
            return CONDITIONS.items()
        case "sort":
            return _bare(ORDERS)
        case "age" | "ended":
            return _bare(_AGES)
        case "user" | "key":
            return _bare(getattr(each, key) for each in names.recent())
        case "signal":
            declared = [phase.signal for plan in plans().values() for phase in plan.phases]
            return _bare([*declared, *(each.signal for each in names.recent())])
    column, _, path = key.partition(".")
    if column in ("payload", "metadata") and path:
        return _bare(text_at(getattr(each, column), path) or "" for each in names.recent())
    return ()


def _bare(found: Iterable[str]) -> list[tuple[str, str]]:
    return [(each, "") for each in found]


def _paths(column: str, names: Names) -> list[str]:
    """Return the paths of scalar values in the declared payloads and in those of recent tasks."""
    found: dict[str, None] = {}
    if column == "payload":
        for plan in names.plans().values():
            found |= dict.fromkeys(f"payload.{name}" for name in sorted(fields(plan.payload_schema) or ()))
    waiting = [(column, getattr(each, column)) for each in names.recent()]
    while waiting and len(found) < _MOST_PATHS:
        path, value = waiting.pop(0)
        if isinstance(value, dict):
            if path.count(".") < _DEEPEST_PATH:
                waiting += [(f"{path}.{name}", each) for name, each in value.items() if re.fullmatch(r"[\w\-]+", name)]
        elif path != column:
            found[path] = None
    return list(found)


def _ranked(word: str, known: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return what begins with the word, then what contains it; each once, without masked and long values."""
    folded = word.casefold()
    begin: dict[str, str] = {}
    contain: dict[str, str] = {}
    for each, hint in known:
        if not each or MASK in each or '"' in each or len(each) > _LONGEST_VALUE or not each.isprintable():
            continue
        if each.casefold().startswith(folded):
            begin.setdefault(each, hint)
        elif folded in each.casefold():
            contain.setdefault(each, hint)
    return [*begin.items(), *((each, hint) for each, hint in contain.items() if each not in begin)][:MOST_COMPLETIONS]


def _quoted(value: str) -> str:
    return f'"{value}"' if re.search(r"[\s()]", value) else value
