"""A page: its path, who may see it, what it reads, and the template that shows it."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec

from onerow.core.errors import BadInput
from onerow.engine.queue.queue import Queue
from onerow.engine.views import Views
from onerow.scaling.server import ScaleAnswers
from onerow.web.security.roles import Role

_LONGEST_VALUE = 4_000


class Ask:
    """What a page reads from: the queue of the caller, its views, the scaling decision, and the parameters of the address."""

    def __init__(self, queue: Queue, views: Views, pairs: list[tuple[str, str]], scale: ScaleAnswers) -> None:
        self.queue = queue
        self.scale = scale
        self.views = views
        self.pairs = pairs
        for _, value in pairs:
            if len(value) > _LONGEST_VALUE:
                raise BadInput(f"a value in the address has at most {_LONGEST_VALUE:,} characters", field="address")

    def get(self, name: str, default: str = "") -> str:
        """Return the last value of a parameter."""
        return next((value for key, value in reversed(self.pairs) if key == name), default)

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.pairs if key == name]

    def one_of(self, name: str, known: Mapping[str, Any], default: str) -> str:
        """Return a parameter that must be one of the known values, else the default."""
        value = self.get(name, default)
        return value if value in known else default

    def link(self, page: str, **changes: object) -> str:
        """Return a relative address with the present parameters and some changed; None removes one, a new one resets paging."""
        kept = [(key, value) for key, value in self.pairs if key not in changes and key != "after"]
        added = [(key, str(value)) for key, value in changes.items() if value not in (None, "")]
        query = urlencode([*kept, *added])
        return f"{page}?{query}" if query else page or "./"


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One page. read: returns the values for the template; every: seconds between two reads while it is shown live."""

    path: str  # without a slash; '' is the overview
    title: str
    template: str
    read: Callable[[Ask], dict[str, Any]]
    role: Role = Role.VIEWER
    all_users: bool = False
    every: float = 1.0
    live: bool = True
    charts: bool = False

    def values(self, ask: Ask) -> dict[str, Any]:
        """Read everything that the template shows."""
        return self.read(ask) | {"ask": ask, "now": ask.queue.store.now()}


def digest(html: str) -> str:
    """Return a short hash of what a page shows, by which an unchanged page is recognised."""
    return hashlib.blake2s(html.encode(), digest_size=8).hexdigest()


def split_view(view: str) -> tuple[str, list[tuple[str, str]]]:
    """Return the path and the parameters of a page's relative address."""
    path, _, query = view.partition("?")
    return path, parse_qsl(query, keep_blank_values=True, max_num_fields=200)
