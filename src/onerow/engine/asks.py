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


Request = Remember | AwaitSignal


def to_plain(request: Request) -> dict[str, Any]:
    """An ask as plain JSON values."""
    plain: dict[str, Any] = msgspec.to_builtins(request)
    return plain


def from_plain(plain: Any) -> Request:
    """The ask that `to_plain` wrote."""
    request: Request = msgspec.convert(plain, Request)
    return request
