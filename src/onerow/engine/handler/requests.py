"""What a running handler asks of its worker, as values, so that an ask can travel over a pipe as well as a call.

Each names what it answers; an answer is JSON text.
"""

from typing import Any

import msgspec


class Ask(msgspec.Struct, frozen=True, tag_field="ask"):
    """The root of all asks."""


class Remember(Ask, frozen=True, tag="remember"):
    """Keep a step's result (JSON text) durably; answers null once it is in the store."""

    name: str
    result: str


class AwaitSignal(Ask, frozen=True, tag="signal"):
    """Take a signal; answers its record, or null when the attempt must park."""

    name: str
    signal: str


class BeginSpawn(Ask, frozen=True, tag="begin_spawn"):
    """Children are about to be spawned; answers {"count": n} when they all were already, else null."""

    name: str


class Spawn(Ask, frozen=True, tag="spawn"):
    """Put some children in: (key, addition as plain values) each; answers how many tasks of this parent they are."""

    name: str
    pipeline: str
    children: list[tuple[str, dict[str, Any]]]


class EndSpawn(Ask, frozen=True, tag="end_spawn"):
    """All children of a spawn are in; answers null."""

    name: str
    count: int


class Join(Ask, frozen=True, tag="join"):
    """How many children ended in which way; answers null while some have not, {"expired": true} past the deadline."""

    name: str


class ChildPage(Ask, frozen=True, tag="children"):
    """Some children; answers {"children": […], "next": cursor or null}."""

    after: str | None = None


Request = Remember | AwaitSignal | BeginSpawn | Spawn | EndSpawn | Join | ChildPage


def to_plain(request: Request) -> dict[str, Any]:
    """An ask as plain JSON values."""
    plain: dict[str, Any] = msgspec.to_builtins(request)
    return plain


def from_plain(plain: Any) -> Request:
    """The ask that `to_plain` wrote."""
    request: Request = msgspec.convert(plain, Request)
    return request
