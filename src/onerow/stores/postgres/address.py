"""A store's URL: what is libpq's, what is ours, and what to assume where it says nothing."""

from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec
from psycopg import ProgrammingError, conninfo

from onerow.core.errors import BadStoreUrl

_OURS = ("schema", "replica", "listen", "prepare", "pool_size")

# A server or a network that falls silent is noticed within seconds, not after the kernel's quarter of an hour.
_DEFAULTS: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "fallback_application_name": "onerow",
}


class Address(msgspec.Struct, frozen=True):
    """Where the database is, without our own options."""

    conninfo: str
    masked: str
    defaults: dict[str, Any]
    options: dict[str, str]

    @property
    def prepare(self) -> bool | None:
        """Whether statements may be prepared; None: find out."""
        return None if "prepare" not in self.options else self.options["prepare"] not in ("no", "false", "0")


def parse(url: str) -> Address:
    """The address in a URL like postgresql://user:password@host/database?schema=onerow."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise BadStoreUrl(f"the PostgreSQL URL can't be read: {error}", field="url") from None
    if parts.scheme not in ("postgresql", "postgres"):
        raise BadStoreUrl(
            f"{parts.scheme}://… is no PostgreSQL URL; write postgresql://user@host/database", field="url"
        )
    pairs = [pair.partition("=") for pair in parts.query.split("&") if pair]
    options = {name: unquote(value) for name, _, value in pairs if name in _OURS}
    plain = urlunsplit(parts._replace(query="&".join("".join(pair) for pair in pairs if pair[0] not in _OURS)))
    try:
        known = conninfo.conninfo_to_dict(plain)
    except ProgrammingError as error:
        raise BadStoreUrl(f"{mask(url)}: {str(error).strip()}", field="url") from None
    return Address(plain, mask(plain), {name: value for name, value in _DEFAULTS.items() if name not in known}, options)


def mask(url: str) -> str:
    """The URL with its password out of sight."""
    parts = urlsplit(url)
    host = parts.netloc
    if parts.password is not None:
        user, _, rest = host.rpartition("@")
        host = f"{user.partition(':')[0]}:***@{rest}"
    pairs = [pair.partition("=") for pair in parts.query.split("&") if pair]
    query = "&".join(f"{name}=***" if "password" in name else f"{name}{sign}{value}" for name, sign, value in pairs)
    return urlunsplit(parts._replace(netloc=host, query=query))
