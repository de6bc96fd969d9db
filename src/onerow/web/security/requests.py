"""Checks of a request before any handler runs: its Host, whether another site sent it, and the size of its body."""

import ipaddress
from collections.abc import Iterable

from starlette.requests import ClientDisconnect, Request

from onerow.web.problems import Problem, Refused

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_FORWARDED = ("forwarded", "x-forwarded-", "x-real-ip", "via")  # beginnings of the names of headers that proxies add


class Hosts:
    """The Host names that are answered; others are refused, because a page of another site could use its own name for
    this address (DNS rebinding). None: all names."""

    def __init__(self, names: Iterable[str] | None) -> None:
        self._names = None if names is None else frozenset(name.lower() for name in names)

    def check(self, request: Request) -> None:
        """Raise Refused if the request names another host."""
        if self._names is None:
            return
        name = host_name(request.headers.get("host", ""))
        if name not in self._names and not any(
            each.startswith("*.") and name.endswith(each[1:]) for each in self._names
        ):
            raise Refused(
                Problem(
                    421, "unknown host", f"this server does not answer for the host {name[:200]!r}",
                    fix="open it by one of its names, or start it with --allow-host NAME",
                )
            )  # fmt: skip


def host_name(host: str) -> str:
    """Return the name in a Host header, without the port, in lower case."""
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]"
    return host.partition(":")[0].lower().rstrip(".")


def is_loopback(host: str) -> bool:
    """Whether an address to listen on, or of a client, is this machine's loopback."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_local_client(request: Request) -> bool:
    """Whether the request comes from this machine, and no proxy passed it on."""
    client = request.client
    forwarded = any(name.lower().startswith(_FORWARDED) for name in request.headers)
    return client is not None and is_loopback(client.host) and not forwarded


def has_bearer(request: Request) -> bool:
    return request.headers.get("authorization", "").lower().startswith("bearer ")


def check_same_site(request: Request) -> None:
    """Raise Refused if a page of another origin sent this request to change something."""
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site")
    foreign = site is not None and site != "same-origin"
    if origin is not None and origin.partition("://")[2].lower() != request.headers.get("host", "").lower():
        foreign = True
    if foreign:
        raise Refused(Problem(403, "cross-site request", "a page of another site sent this request"))


def needs_csrf_token(request: Request) -> bool:
    """Whether a browser may have added the credential by itself: then only a token proves that our page sent it."""
    return any(name in request.headers for name in ("cookie", "origin", "sec-fetch-site")) or not request.headers.get(
        "content-type", ""
    ).startswith("application/json")


async def read_body(request: Request, limit: int) -> bytes:
    """Return the body; raise Refused if it is larger than the limit."""
    too_large = Refused(Problem(413, "body too large", f"at most {limit:,} bytes are accepted here"))
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise too_large
    parts, size = [], 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise too_large
            parts.append(part)
    except ClientDisconnect:
        raise Refused(Problem(400, "incomplete request", "the client closed the connection")) from None
    return b"".join(parts)
