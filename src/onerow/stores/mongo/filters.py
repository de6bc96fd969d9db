"""Translate a Filter to a query. Conditions that the server can't evaluate exactly are checked in the client.

User text appears in queries as values or, escaped per character, in patterns; never as operators or paths.
"""

import contextlib
import re
from collections.abc import Callable
from datetime import datetime
from functools import cache, partial
from typing import Any

import msgspec

from onerow.core.filters import Filter, equal_terms, matches, prefix_range, time_terms
from onerow.core.status import OPEN, PROCESSING, WAITING, Status
from onerow.core.task import Task
from onerow.stores.mongo.documents import Document
from onerow.stores.mongo.schema import A_TIME

_READY: Document = {"awaiting": None}
_PARKED: Document = {"awaiting": {"$gte": ""}}
_PLAIN_STEP = re.compile(r"[^$\x00.][^\x00.]*")


def query_of(where: Filter) -> Document:
    """Return the query: it selects every match, and possibly more if `client_filter` is not None."""
    terms = _terms(where)
    if where.statuses == {WAITING} and where.parked is None and where.awaiting is None:
        # Ready and parked tasks have separate indexes, so a query for both must name both conditions.
        return {"$or": [{"$and": [*terms, term]} for term in (_READY, _PARKED)]}
    return {"$and": terms} if terms else {}


def _terms(where: Filter) -> list[Document]:
    # Only ended tasks are purged; without this condition an index can cover queries on open tasks.
    needs_rest = where.hidden or (where.statuses and where.statuses <= OPEN)
    return [*([] if needs_rest else [{"purged_at": None}]), *_conditions(where)]


def _implied_statuses(where: Filter) -> frozenset[Status]:
    """Return the status of every match, if the filter implies one: the indexes of leases and of parked tasks have it."""
    if where.leased_by is not None:
        return frozenset({PROCESSING})
    return frozenset({WAITING}) if where.awaiting is not None or where.parked else frozenset()


def _conditions(where: Filter) -> list[Document]:
    terms: list[Document] = []
    statuses = where.statuses or _implied_statuses(where)
    if statuses:
        names = sorted(status.value for status in statuses)
        terms.append({"status": names[0] if len(names) == 1 else {"$in": names}})
    terms += [{column: value} for column, value in equal_terms(where)]
    if where.cancel_requested is not None:
        terms.append({"cancel_requested": where.cancel_requested})
    if where.phases:
        terms.append({"type": {"$in": sorted(where.phases)}})
    if where.parked is not None:
        terms.append(_PARKED if where.parked else _READY)
    for column, comparison, moment in time_terms(where):
        terms.append({column: A_TIME | {"$lte" if comparison == "<=" else "$gte": moment}})
    for key, text in (("error", where.error_text), ("title", where.title_text)):
        if text is not None:
            terms.append({key: {"$regex": _containing(text)}})
    for column, paths in (("payload", where.payload), ("metadata", where.metadata)):
        terms += [term for path, value in paths if (term := _path_term(column, path, value)) is not None]
    if where.id_prefix is not None:
        first, beyond = prefix_range(where.id_prefix)
        terms.append({"_id": {"$gte": first, "$lt": beyond}})
    if where.ahead_of is not None:
        terms.append(_ahead_of(*where.ahead_of))
    terms += [{"$and": _conditions(each) or [{}]} for each in where.all_of]
    if where.any_of:
        terms.append({"$or": [{"$and": _conditions(each) or [{}]} for each in where.any_of]})
    # A condition that selects more than the matches must not exclude; the client checks it.
    if exact := [{"$and": _conditions(each) or [{}]} for each in where.none_of if _is_exact(each)]:
        terms.append({"$nor": exact})
    return terms


def _ahead_of(priority: int, run_at: datetime, task_id: str) -> Document:
    return {
        "$or": [
            {"priority": {"$lt": priority}},
            {"priority": priority, "run_at": {"$lt": run_at}},
            {"priority": priority, "run_at": run_at, "_id": {"$lt": task_id}},
        ]
    }


def client_filter(where: Filter) -> Callable[[Task], bool] | None:
    """Return the check to apply to each task that the query finds; None if the query is exact."""
    return None if _is_exact(where) else partial(_matches, where)


def _matches(where: Filter, task: Task) -> bool:
    return matches(task, where)


def _is_exact(where: Filter) -> bool:
    """Whether the server evaluates every condition as `matches` does."""
    texts = (where.error_text, where.title_text, where.text)
    return (
        all(text is None for text in texts)
        and not where.payload
        and not where.metadata
        and all(_is_exact(each) for each in (*where.all_of, *where.any_of, *where.none_of))
    )


def _path_term(column: str, path: str, value: str) -> Document | None:
    """Return the condition for documents that may have the value; None if a query can't express the path."""
    if not all(_PLAIN_STEP.fullmatch(step) for step in path.split(".")):
        return None
    asked: list[Any] = [value]
    with contextlib.suppress(msgspec.DecodeError, UnicodeEncodeError):
        asked.append(msgspec.json.decode(value))
    # Documents, arrays and unusual numbers are compared as text in the client; the query checks only the path.
    if len(asked) == 2 and not (asked[1] is None or type(asked[1]) in (bool, str) or _is_common(asked[1])):
        found: Document = {f"{column}.{path}": {"$exists": True}}
    else:
        found = {f"{column}.{path}": {"$in": asked}}
    return {"$or": [found, {column: {"$type": "javascript"}}]}


def _is_common(value: Any) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def _containing(text: str) -> str:
    """Return a case-insensitive pattern; it also matches texts that only casefold in the client can decide."""
    alike, expanding = _alike()
    letters = "".join(_one_of(alike.get(letter, "") + letter) for letter in text.casefold())
    return f"{letters}|[{expanding}]"


def _one_of(letters: str) -> str:
    return "[" + "".join(f"\\x{{{ord(letter):x}}}" for letter in letters) + "]"


@cache
def _alike() -> tuple[dict[str, str], str]:
    """Return (folded letter → letters that fold to it, pattern of the letters that fold to several)."""
    alike: dict[str, str] = {}
    expanding = []
    for code in range(0x110000):
        folded = chr(code).casefold()
        if len(folded) > 1:
            expanding.append(f"\\x{{{code:x}}}")
        elif folded != chr(code):
            alike[folded] = alike.get(folded, "") + chr(code)
    return alike, "".join(expanding)
