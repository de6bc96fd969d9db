"""The list of tasks, and the list of parked tasks: query, columns, facets, pages, completion, export."""

import csv
import io
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import msgspec

from onerow.core.errors import BadQuery, OnerowError
from onerow.core.labels import Labels
from onerow.core.status import Status
from onerow.engine.views import Lane, Row
from onerow.web.pages.page import Ask, Page
from onerow.web.problems import problem_of

COLUMNS = (
    "task", "title", "phase", "status", "progress", "attempt", "added", "due", "ended", "run time", "worker", "user",
    "priority", "waits for", "error",
)  # fmt: skip
DEFAULT_COLUMNS = ("task", "title", "phase", "status", "progress", "attempt", "added", "run time", "error")
WAITING_COLUMNS = ("task", "title", "phase", "status", "waits for", "added", "due")
NUMBERS = frozenset({"attempt", "added", "due", "ended", "run time", "priority"})
COOKIE = "onerow_columns"
PAGE = 50
_EXPORTED_AT_ONCE = 500
_LOOK_FOR = timedelta(milliseconds=15)
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # also the wide forms
"""A text that begins so is run by spreadsheets."""
_MOST_NAMES = 12  # filters by pipeline or phase; a query can name each
_TERM = re.compile(r'(?:"[^"]*"|[^\s"])+')


def lane_query(lane: Lane) -> str:
    """Return the query for the tasks of one phase."""
    return f"pipeline:{quoted(lane.pipeline)} phase:{quoted(lane.phase)}"


def quoted(text: str) -> str:
    return f'"{text}"' if re.search(r'[\s()"]', text) else text


def read_tasks(ask: Ask) -> dict[str, Any]:
    query = ask.get("q").strip()
    columns = [name for name in ask.all("col") if name in COLUMNS] or list(DEFAULT_COLUMNS)
    return _listed(ask, "tasks", query, "", columns, "Tasks")


def read_waiting(ask: Ask) -> dict[str, Any]:
    """Return the waiting room: tasks parked for a signal or for their children."""
    query = ask.get("q").strip()
    return _listed(ask, "waiting", query, "status:parked", list(WAITING_COLUMNS), "Waiting room")


def _listed(ask: Ask, page_name: str, typed: str, always: str, columns: list[str], heading: str) -> dict[str, Any]:
    """Return what a list shows. typed: the query of the person; always: the term that the list adds to it."""
    query = f"{always} {typed}".strip()
    values: dict[str, Any] = {
        "page_name": page_name, "q": query, "heading": heading, "columns": columns, "all_columns": COLUMNS, "number_columns": NUMBERS,
        "rows": [], "next": None, "looked_back_to": None, "mistake": None, "terms": [],
        "facets": [], "extra": [], "cells": [], "words": {}, "tabs": [],
    }  # fmt: skip
    pipeline, labels = ask.views.labels_of_query(query)
    extra = [column for column in labels.columns if "." in column]
    values |= {
        "facets": list(_facets(ask, query, pipeline)),
        "extra": extra,
        "words": labels.statuses,
        "tabs": list(_tabs(ask, query, pipeline, labels)),
    }
    try:
        table = ask.views.table(query, extra, limit=PAGE, after=ask.get("after") or None)
    except BadQuery as error:
        return values | {"mistake": problem_of(error)}
    page = table.page
    if not page.tasks and typed:
        values["terms"] = list(_without_each(ask, page_name, typed, always))
    return values | {"rows": page.tasks, "cells": table.cells, "next": page.next, "looked_back_to": page.looked_back_to}


def _facets(ask: Ask, query: str, pipeline: str) -> Iterator[list[dict[str, Any]]]:
    """Yield filters by status, by pipeline, and by phase of the list's pipeline; counts only while no query narrows it."""
    terms = _TERM.findall(query)
    counts: dict[str, int] = {}
    if not terms:
        overview = ask.views.overview()
        counts = {name: getattr(overview, name) for name in (*(status.value for status in Status), "parked")}
    statuses = ("waiting", "processing", "parked", "failed", "completed", "cancelled")
    yield [_facet(ask, terms, "status", name) | {"count": counts.get(name), "translated": True} for name in statuses]
    plans = ask.views.plans()
    if len(plans) > 1:
        names = [pipeline] if pipeline in plans else sorted(plans)
        yield [_facet(ask, terms, "pipeline", name) for name in names[:_MOST_NAMES]]
    if pipeline in plans and len(plans[pipeline].phases) > 1:
        yield [_facet(ask, terms, "phase", phase.name) for phase in plans[pipeline].phases[:_MOST_NAMES]]


def _facet(ask: Ask, terms: list[str], key: str, name: str) -> dict[str, Any]:
    """Return a filter that adds a term to the query in place of others of its key, or removes it if it is there."""
    term = f"{key}:{quoted(name)}"
    replaced = (f"{key}:", "phase:") if key == "pipeline" else (f"{key}:",)
    others = [each for each in terms if not each.startswith(replaced)]
    wanted = others if term in terms else [*others, term]
    return {
        "name": name,
        "on": term in terms,
        "count": None,
        "translated": False,
        "href": ask.link("tasks", q=" ".join(wanted)),
    }


def _tabs(ask: Ask, query: str, pipeline: str, labels: Labels) -> Iterator[dict[str, Any]]:
    """Yield the tabs that the definition of the pipeline has, each with the address of its tasks."""
    for tab in labels.tabs:
        wanted = f"pipeline:{quoted(pipeline)} ({tab.query})"
        yield {"name": tab.name, "on": query == wanted, "href": ask.link("tasks", q=wanted)}


def _without_each(ask: Ask, page_name: str, typed: str, always: str) -> Iterator[dict[str, str]]:
    """Yield each term of a query that matches nothing, with the address of the query without it."""
    found = _TERM.findall(typed)
    words = " ".join(each for each in found if ":" not in each)
    terms = [*(each for each in found if ":" in each), *([words] if words else [])]
    if re.search(r"[()]|\b(or|and|not)\b", typed, re.IGNORECASE) or not 1 < len(terms) <= 8:
        return
    for number, term in enumerate(terms):
        rest = " ".join(terms[:number] + terms[number + 1 :])
        if ask.views.find(f"{always} {rest}".strip(), limit=1, within=_LOOK_FOR).tasks:
            yield {"text": term, "href": f"{page_name}?{urlencode({'q': rest})}"}


def exported(ask: Ask, form: str) -> Iterator[bytes]:
    """Yield all matching tasks as CSV or as JSON lines, page by page."""
    query, after = ask.get("q"), None
    if form == "csv":
        yield "\ufeff".encode()  # without it a spreadsheet does not read UTF-8
        yield _csv([Row.__struct_fields__])
    while True:
        page = ask.views.find(query, limit=_EXPORTED_AT_ONCE, after=after)
        if form == "csv":
            yield _csv([[_cell(getattr(row, name)) for name in Row.__struct_fields__] for row in page.tasks])
        else:
            yield b"".join(msgspec.json.encode(row) + b"\n" for row in page.tasks)
        after = page.next
        if after is None:
            return


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) else value
    return "" if value is None else msgspec.json.encode(value).decode().strip('"')


def _csv(rows: Any) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


def matched_text(ask: Ask, spelled: Callable[[int], str]) -> str:
    """Return the number of tasks that match, as a text; '≥' if not all could be read in time."""
    try:
        found = ask.views.count(ask.get("q"))
    except OnerowError:
        return ""
    return ("≥ " if found.looked_back_to else "") + spelled(found.count)


def complete(ask: Ask) -> list[dict[str, str]]:
    """Return completions at the cursor, each with the whole query that it makes."""
    text, at = ask.get("q"), ask.get("at")
    found = ask.views.query_completions(text, int(at) if at.isdecimal() else None)
    before, after = text[: found.start], text[found.end :]
    return [{"value": f"{before}{each.text}{after}", "label": each.text, "note": each.hint} for each in found.items]


TASK_LISTS = [
    Page(path="tasks", title="Tasks", template="tasks.html", read=read_tasks),
    Page(path="waiting", title="Waiting room", template="tasks.html", read=read_waiting),
]
