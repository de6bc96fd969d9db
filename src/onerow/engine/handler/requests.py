"""Requests of a running handler to its worker, as values, so that they can also be sent over a pipe.

Each docstring describes the answer, which is JSON text.
"""

from typing import Any

import msgspec


class Ask(msgspec.Struct, frozen=True, tag_field="ask"):
    """Base class of all requests."""


class Remember(Ask, frozen=True, tag="remember"):
    """Store a step's result (JSON text); answers null once it is durable."""

    name: str
    result: str


class AwaitSignal(Ask, frozen=True, tag="signal"):
    """Take a signal; answers its record, or null if the attempt must park."""

    name: str
    signal: str


class BeginSpawn(Ask, frozen=True, tag="begin_spawn"):
    """Start a spawn; answers {"count": n} if it was completed earlier, else null."""

    name: str


class Spawn(Ask, frozen=True, tag="spawn"):
    """Insert some children, each (key, addition as plain values); answers how many are children of this task."""

    name: str
    pipeline: str
    children: list[tuple[str, dict[str, Any]]]


class EndSpawn(Ask, frozen=True, tag="end_spawn"):
    """End a spawn: all its children are inserted; answers null."""

    name: str
    count: int


class Join(Ask, frozen=True, tag="join"):
    """Count ended children by status; answers null until all have ended, {"expired": true} past the deadline."""

    name: str


class ChildPage(Ask, frozen=True, tag="children"):
    """Read one page of children; answers {"children": […], "next": cursor or null}."""

    after: str | None = None


Request = Remember | AwaitSignal | BeginSpawn | Spawn | EndSpawn | Join | ChildPage
