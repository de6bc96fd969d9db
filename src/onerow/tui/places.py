"""Places of the monitor: a page with its argument, how a typed line names one, and queries that are put together."""

import re
from typing import NamedTuple

from onerow.core.errors import BadInput
from onerow.core.suggest import did_you_mean
from onerow.engine.views import Completion, Completions
from onerow.tui.keys import PAGES

TITLES = {page: page.capitalize() for page in PAGES}
_TAKES_QUERY = ("tasks", "failures", "log")
_QUERY_PARTS = re.compile(r'"[^"]*"|(?<!\S)sort:\S+|\bor\b', re.IGNORECASE)


class Place(NamedTuple):
    """A page, and what it shows: the query of a list, or the id of a task."""

    page: str
    argument: str = ""


def parse_place(line: str) -> Place:
    """Return the place that a line names: `workers`, `tasks status:failed`, `task ID`, or a query alone."""
    word, _, rest = line.strip().partition(" ")
    rest = rest.strip()
    if word == "task":
        if not rest:
            raise BadInput("task needs an id", fix="write: task ID", field="place")
        return Place("task", rest)
    if word in PAGES:
        if rest and word not in _TAKES_QUERY:
            raise BadInput(f"{word} takes no query", fix=f"write: {word}, or: tasks {rest}", field="place")
        return Place(word, rest)
    if ":" in word or rest:
        return Place("tasks", line.strip())
    if not word:
        raise BadInput("nothing was typed", fix=f"write one of: {', '.join(PAGES)}", field="place")
    near = did_you_mean(word, PAGES, " ").strip()
    if near:
        raise BadInput(f"no page {word!r}", fix=near, field="place")
    return Place("task", word)


def narrowed(query: str, condition: str) -> str:
    """Return the query for those of its tasks that meet a condition too."""
    parts = _QUERY_PARTS.findall(query)
    if "or" not in map(str.lower, parts):
        return f"{query} {condition}".strip()
    orders = [part for part in parts if part.startswith("sort:")]  # these may not stand in parentheses
    alternatives = _QUERY_PARTS.sub(lambda part: "" if part[0] in orders else part[0], query).strip()
    return " ".join([f"({alternatives})", condition, *orders])


def complete_page(text: str) -> Completions:
    """Return the pages whose names begin with a text."""
    items = [Completion(page, "key", TITLES[page]) for page in PAGES if page.startswith(text)]
    return Completions(0, len(text), items)


class Trail:
    """The places that were visited, for going back."""

    def __init__(self, first: Place) -> None:
        self._places = [first]

    @property
    def here(self) -> Place:
        return self._places[-1]

    def go(self, place: Place) -> None:
        """Add a place; a main page without an argument starts a new trail."""
        if place == self.here:
            return
        if not place.argument and place.page in PAGES:
            self._places = [place] if place.page == "board" else [Place("board"), place]
        else:
            self._places.append(place)

    def replace(self, place: Place) -> None:
        """Replace the place: another query or task on the same page."""
        self._places[-1] = place

    def back(self) -> Place:
        """Remove the last place and return the one before; the first place stays."""
        if len(self._places) > 1:
            self._places.pop()
        return self.here
