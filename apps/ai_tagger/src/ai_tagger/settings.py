"""Settings from the environment: the database, its roles, the model and its prices."""

import os
import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Literal, Self, cast
from urllib.parse import urlsplit

import msgspec
import psycopg
from psycopg.conninfo import conninfo_to_dict

from ai_tagger.tags import TAGS
from onerow import BadInput
from onerow.core.durations import parse_duration
from onerow.core.rates import parse_rate

AnswerFormat = Literal["json_schema", "json_object", "none"]

_ROLE = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_TAG = re.compile(r"[^\s,][^,]{0,39}")


class Endpoint(msgspec.Struct, frozen=True):
    """A chat endpoint with OpenAI's API, and what a million of its tokens costs."""

    url: str
    model: str
    key: str = ""
    timeout: float = 60
    answer_format: AnswerFormat = "json_schema"
    input_price: Decimal = Decimal(0)
    output_price: Decimal = Decimal(0)

    def __repr__(self) -> str:
        return f"Endpoint({self.url!r}, {self.model!r})"  # without the key

    def __str__(self) -> str:
        return f"{self.model} at {urlsplit(self.url).netloc}"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one tagger."""

    database_url: str
    members_role: str = "tagger_members"
    service_role: str = "tagger_service"
    tags: tuple[str, ...] = TAGS
    endpoint: Endpoint | None = None  # None: the offline tagger
    concurrency: int = 40
    rate: str = ""
    lease: str = "30s"
    retry_wait: str = "30s"
    gather: str = "1s"

    def __repr__(self) -> str:
        return f"Settings(endpoint={self.endpoint!r}, tags={self.tags!r})"  # the URL may have a password

    @classmethod
    def of_environment(cls, variables: Mapping[str, str] | None = None) -> Self:
        """Read the variables TAGGER_…; raise BadInput that names a wrong variable."""
        known = os.environ if variables is None else variables

        def said(name: str, default: str = "") -> str:
            return known.get(f"TAGGER_{name}", "").strip() or default

        endpoint = _endpoint(said)
        members_role = _role("MEMBERS_ROLE", said("MEMBERS_ROLE", "tagger_members"))
        service_role = _role("SERVICE_ROLE", said("SERVICE_ROLE", "tagger_service"))
        if members_role == service_role:
            raise _wrong("SERVICE_ROLE", "must differ from TAGGER_MEMBERS_ROLE, whose members write nothing")
        return cls(
            database_url=_database_url(said("DATABASE_URL", "postgresql://localhost/tagger")),
            members_role=members_role,
            service_role=service_role,
            tags=_tags(said("TAGS"), offline=endpoint is None),
            endpoint=endpoint,
            concurrency=_posts(said("CONCURRENCY", "40")),
            rate=_rate(said("RATE")),
            lease=_duration("LEASE", said("LEASE", "30s")),
            retry_wait=_duration("RETRY_WAIT", said("RETRY_WAIT", "30s")),
            gather=_duration("GATHER", said("GATHER", "1s")),
        )


def _wrong(name: str, problem: str, fix: str = "") -> BadInput:
    return BadInput(f"TAGGER_{name} {problem}", fix=fix, field=f"TAGGER_{name}")


def _database_url(text: str) -> str:
    """Check the URL without a connection: libpq's messages contain parts of a password that is not encoded."""
    given, _, _ = text.partition("://")[2].partition("?")
    authority, _, database = given.partition("/")
    try:
        found = conninfo_to_dict(text)
    except (psycopg.Error, ValueError):
        found = {}
    if (
        not found
        or not text.startswith(("postgresql://", "postgres://"))
        or authority.count("@") > 1
        or "@" in database  # what precedes it is a password with a slash
        or not re.fullmatch(r"[0-9,]*", str(found.get("port") or ""))
    ):
        raise _wrong(
            "DATABASE_URL",
            "is not a PostgreSQL URL",
            "write it like postgresql://user:password@host/database, with special characters encoded, such as %40 for @",
        )
    return text


def _endpoint(said: Callable[..., str]) -> Endpoint | None:
    if not (url := said("MODEL_URL")):
        if useless := [name for name in ("MODEL", "API_KEY") if said(name)]:
            raise _wrong(
                useless[0],
                "is set without TAGGER_MODEL_URL",
                "set TAGGER_MODEL_URL, such as https://api.openai.com/v1; for the offline tagger unset "
                + " and ".join(f"TAGGER_{name}" for name in useless),
            )
        return None
    return Endpoint(
        _model_url(url),
        _model(said("MODEL", "gpt-4o-mini")),
        _key(said("API_KEY")),
        _timeout(said("TIMEOUT", "60")),
        _format(said("ANSWER_FORMAT", "json_schema")),
        _price("INPUT_PRICE", said("INPUT_PRICE", "0")),
        _price("OUTPUT_PRICE", said("OUTPUT_PRICE", "0")),
    )


def _model_url(text: str) -> str:
    """Check the URL; no message quotes it, because it may contain a key."""
    try:
        url = urlsplit(text)
        valid = bool(url.hostname) and url.port != 0
    except ValueError:
        valid = False
    if not valid or not text.isprintable() or " " in text or url.scheme not in ("http", "https"):
        raise _wrong(
            "MODEL_URL", "must be a URL with http:// or https://, a host and a valid port", "https://api.openai.com/v1"
        )
    if "@" in url.netloc:
        raise _wrong("MODEL_URL", "must have no user and password", "set the key in TAGGER_API_KEY")
    if url.query or url.fragment:
        raise _wrong("MODEL_URL", "must end with a path, without ? and #", "https://api.openai.com/v1")
    return text.rstrip("/")


def _model(text: str) -> str:
    if len(text) > 200 or not text.isprintable():
        raise _wrong("MODEL", "must be the name of a model, of at most 200 characters")
    return text


def _key(text: str) -> str:
    if not re.fullmatch("[!-~]*", text):
        raise _wrong("API_KEY", "must be printable ASCII without spaces and line breaks", "copy the key again")
    return text


def _decimal(text: str) -> Decimal:
    """Return a number; NaN, which lies between no bounds, if it is none."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        return Decimal("NaN")
    return value if value.is_finite() else Decimal("NaN")


def _timeout(text: str) -> float:
    value = float(_decimal(text))
    if not 0 < value <= 300:
        raise _wrong("TIMEOUT", f"must be a number of seconds above 0 and at most 300, not {text!r}")
    return value


def _price(name: str, text: str) -> Decimal:
    value = _decimal(text)
    if value.is_nan() or not 0 <= value < 1_000_000:
        raise _wrong(name, f"must be a number from 0 to below 1,000,000, not {text!r}")
    return value


def _duration(name: str, text: str) -> str:
    parse_duration(text, f"TAGGER_{name}")  # its error names the variable
    return text


def _posts(text: str) -> int:
    if not re.fullmatch(r"[0-9]{2,4}", text) or int(text) < 10:
        raise _wrong("CONCURRENCY", f"must be a number of posts from 10 to 9999, not {text!r}")
    return int(text)


def _rate(text: str) -> str:
    if text:
        parse_rate(text, "TAGGER_RATE")
    return text


def _format(text: str) -> AnswerFormat:
    if text not in ("json_schema", "json_object", "none"):
        raise _wrong("ANSWER_FORMAT", f"must be json_schema, json_object or none, not {text!r}")
    return cast(AnswerFormat, text)


def _role(name: str, text: str) -> str:
    if not _ROLE.fullmatch(text):
        raise _wrong(name, f"must be the name of a role in lower-case letters, digits and _, not {text!r}")
    if text in ("public", "none") or text.startswith("pg_"):
        raise _wrong(name, f"must not be {text!r}, which PostgreSQL keeps for itself")
    return text


def _tags(text: str, *, offline: bool) -> tuple[str, ...]:
    if not text:
        return TAGS
    tags = tuple(dict.fromkeys(tag.strip() for tag in text.split(",") if tag.strip()))
    wrong = [tag for tag in tags if not _TAG.fullmatch(tag)]
    if wrong or not 1 <= len(tags) <= 100:
        raise _wrong("TAGS", "takes 1 to 100 tags of at most 40 characters, with commas between")
    if offline and (unknown := [tag for tag in tags if tag not in TAGS]):
        raise _wrong(
            "TAGS",
            f"has tags that the offline tagger does not know: {', '.join(unknown)}",
            f"it knows {', '.join(TAGS)}; or set TAGGER_MODEL_URL",
        )
    return tags
