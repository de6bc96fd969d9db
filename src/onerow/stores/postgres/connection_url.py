"""Parses a store URL into libpq's parameters, our own options, and defaults."""

from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec
from psycopg import ProgrammingError, conninfo

from onerow.core.errors import BadStoreUrl
from onerow.core.urls import mask_in, mask_password

_OWN_OPTIONS = ("schema", "listen", "prepare", "pool_size")

# Detects a silent server or network within seconds; the kernel's defaults take about 15 minutes.
_DEFAULTS: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "fallback_application_name": "onerow",
}
# Overrides PGCLIENTENCODING and the encoding of the database.
_ALWAYS = {"client_encoding": "utf8"}


class Address(msgspec.Struct, frozen=True):
    """A parsed URL: `conninfo` without our own options, which are in `options`."""

    conninfo: str
    masked: str
    defaults: dict[str, Any]
    options: dict[str, str]

    @property
    def prepare(self) -> bool | None:
        """Whether statements may be prepared; None: detect a pooler."""
        return None if "prepare" not in self.options else self.options["prepare"] not in ("no", "false", "0")

    @property
    def pool_size(self) -> int:
        """The maximum number of connections; 10 by default."""
        return check_pool_size(self.options.get("pool_size", "10"))


def check_pool_size(size: int | str) -> int:
    """Return a pool size from 1 to 1,000; raise BadStoreUrl for anything else."""
    text = str(size)
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1000:
        raise BadStoreUrl(f"pool_size must be a whole number from 1 to 1,000, not {size!r}", field="pool_size")
    return int(text)


def parse(url: str) -> Address:
    """Parse a URL like postgresql://user:password@host/database?schema=onerow."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise BadStoreUrl(f"{mask_password(url)} is not a URL: {mask_in(str(error), url)}", field="url") from None
    if parts.scheme not in ("postgresql", "postgres"):
        raise BadStoreUrl(
            f"{parts.scheme}://… is no PostgreSQL URL", fix="write postgresql://user@host/database", field="url"
        )
    pairs = [pair.partition("=") for pair in parts.query.split("&") if pair]
    options = {name: unquote(value) for name, _, value in pairs if name in _OWN_OPTIONS}
    plain = urlunsplit(parts._replace(query="&".join("".join(pair) for pair in pairs if pair[0] not in _OWN_OPTIONS)))
    try:
        known = conninfo.conninfo_to_dict(plain)
    except ProgrammingError as error:
        raise BadStoreUrl(
            f"{mask_password(url)}: {mask_in(str(error).strip(), url)}",
            fix=f"options are libpq's and {', '.join(_OWN_OPTIONS)}; to read from a replica, give its URL instead",
            field="url",
        ) from None
    if not all(port.isdigit() for port in str(known.get("port") or "0").split(",") if port):
        raise BadStoreUrl(
            f"{mask_password(url)}: the port is not a number",
            fix="write / in a password as %2F, @ as %40 and : as %3A",
            field="url",
        )
    return Address(
        plain,
        mask_password(plain),
        {name: value for name, value in _DEFAULTS.items() if name not in known} | _ALWAYS,
        options,
    )
