"""Query language for tasks: `status:failed phase:video error:timeout user:u1 age:>1h payload.topic:tide some text`."""

import difflib
import re
from datetime import datetime
from typing import Any

from onerow.core.durations import parse_duration
from onerow.core.errors import BadInput, UnknownName
from onerow.core.failure import ERROR_CLASSES
from onerow.core.filters import Filter
from onerow.core.status import WAITING, Status
from onerow.core.times import parse_time

KEYS = {
    "status": "waiting, processing, completed, failed or cancelled; several with commas",
    "pipeline": "the pipeline's name",
    "phase": "the phase's name; several with commas",
    "user": "the owner",
    "error": "a class of error (network, timeout …), or text in the error",
    "title": "text in the title",
    "key": "the limit key",
    "unique": "the unique key",
    "parent": "the parent's id",
    "worker": "the worker that holds it",
    "signal": "the signal that it waits for",
    "age": "how long ago it was added: age:>1h, age:<10m",
    "ended": "how long ago it ended: ended:<1h",
    "is": "parked, due, or cancelling",
    "payload.…": "a value in the payload, by its path: payload.topic:tides",
}
"""Every key of the language, and its possible values."""

_TOKEN = re.compile(r'(?:"[^"]*"|[^\s"])+')
_TERM = re.compile(r"([A-Za-z_][\w.\-]*):(.*)", re.DOTALL)
_TEXT = {"title": "title_text", "key": "limit_key", "unique": "unique_key", "parent": "parent_id"}
_EQUAL = _TEXT | {"pipeline": "pipeline", "user": "user_id", "worker": "leased_by"}


def read_query(text: str, now: datetime) -> Filter:
    """Parse a query; words without a key form one text, searched in title, error, id and payload."""
    fields: dict[str, Any] = {}
    payload: list[tuple[str, str]] = []
    words: list[str] = []
    if text.count('"') % 2:
        raise BadInput(f"the query {text!r} opens a quotation mark and never closes it", field="query")
    for token in _TOKEN.findall(text):
        term = None if token.startswith('"') else _TERM.fullmatch(token)
        if term is None:
            words.append(token.replace('"', ""))
            continue
        key, value = term[1], term[2].replace('"', "")
        if not value and key != "user":
            raise BadInput(f"{key}: needs a value right after the colon", field="query")
        if key.startswith("payload."):
            payload.append((key.removeprefix("payload."), value))
            continue
        for field, found in _term(key, value, now).items():
            if fields.get(field, found) != found:
                raise BadInput(f"the query says {key}: twice; no task can be both", field="query")
            fields[field] = found
    if words:
        fields["text"] = " ".join(words)
    return Filter(**fields, payload=tuple(payload))


def _term(key: str, value: str, now: datetime) -> dict[str, Any]:
    match key:
        case "status":
            return {"statuses": frozenset(_status(name) for name in value.split(","))}
        case "phase" | "type":
            return {"phases": frozenset(value.split(","))}
        case "error" | "class":
            return {"error_class": value} if value in ERROR_CLASSES else {"error_text": value}
        case "signal":
            return {"awaiting": f"signal:{value}"}
        case "age" | "added":
            return _ago(key, value, now, "created_before", "created_after")
        case "ended":
            return _ago(key, value, now, "ended_before", "ended_after")
        case "is":
            return _is(value, now)
    if key in _EQUAL:
        return {_EQUAL[key]: value}
    near = difflib.get_close_matches(key, KEYS, 1)
    hint = f"did you mean {near[0]}:" if near else f"there are {', '.join(f'{known}:' for known in KEYS)}"
    raise UnknownName(f'the query has no word {key}: ({hint}); to look for the text itself, quote it: "{key}:…"', field="query")  # fmt: skip


def _is(value: str, now: datetime) -> dict[str, Any]:
    match value:
        case "parked":
            return {"parked": True}
        case "due":
            return {"statuses": frozenset({WAITING}), "parked": False, "due_before": now}
        case "cancelling":
            return {"cancel_requested": True}
    raise UnknownName(f"is:{value} means nothing; is:parked, is:due and is:cancelling do", field="query")


def _ago(key: str, value: str, now: datetime, before: str, since: str) -> dict[str, Any]:
    """Parse an age: more than a duration (>) or within it (<, default); also a time, as in age:<2026-11-15T00:00Z."""
    sign, rest = (value[0], value[1:].removeprefix("=")) if value[0] in "<>" else ("<", value)
    if re.match(r"\d{4}-", rest):
        moment = parse_time(rest if "T" in rest else f"{rest}T00:00:00Z", key)
    else:
        moment = now - parse_duration(rest, f"{key}:")
    return {before if sign == ">" else since: moment}


def _status(name: str) -> Status:
    try:
        return Status(name)
    except ValueError:
        raise UnknownName(f"no status {name!r}; there are {', '.join(Status)}", field="query") from None
