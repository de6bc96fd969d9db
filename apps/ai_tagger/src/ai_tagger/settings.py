"""Settings from the environment: the database, its roles, the model and its prices."""

import os
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Literal, Self, cast
from urllib.parse import urlsplit

import msgspec

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

        endpoint = None
        if url := said("MODEL_URL"):
            if urlsplit(url).scheme not in ("http", "https"):
                raise BadInput(
                    "TAGGER_MODEL_URL must begin with http:// or https://",
                    fix="https://api.openai.com/v1",
                    field="TAGGER_MODEL_URL",
                )
            endpoint = Endpoint(
                url.rstrip("/"),
                said("MODEL", "gpt-4o-mini"),
                said("API_KEY"),
                float(_number("TIMEOUT", said("TIMEOUT", "60"))),
                _format(said("ANSWER_FORMAT", "json_schema")),
                _number("INPUT_PRICE", said("INPUT_PRICE", "0")),
                _number("OUTPUT_PRICE", said("OUTPUT_PRICE", "0")),
            )
        return cls(
            database_url=said("DATABASE_URL", "postgresql://localhost/tagger"),
            members_role=_role("MEMBERS_ROLE", said("MEMBERS_ROLE", "tagger_members")),
            service_role=_role("SERVICE_ROLE", said("SERVICE_ROLE", "tagger_service")),
            tags=_tags(said("TAGS"), offline=endpoint is None),
            endpoint=endpoint,
            concurrency=_posts(said("CONCURRENCY", "40")),
            rate=_rate(said("RATE")),
            lease=_duration("LEASE", said("LEASE", "30s")),
            retry_wait=_duration("RETRY_WAIT", said("RETRY_WAIT", "30s")),
            gather=_duration("GATHER", said("GATHER", "1s")),
        )


def _number(name: str, text: str) -> Decimal:
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal(-1)
    if not (value.is_finite() and 0 <= value < 1_000_000):
        raise BadInput(f"TAGGER_{name} must be a number from 0 on, not {text!r}", field=f"TAGGER_{name}")
    return value


def _duration(name: str, text: str) -> str:
    parse_duration(text, f"TAGGER_{name}")  # its error names the variable
    return text


def _posts(text: str) -> int:
    if not re.fullmatch(r"[0-9]{2,4}", text) or int(text) < 10:
        raise BadInput(
            f"TAGGER_CONCURRENCY must be a number of posts from 10 to 9999, not {text!r}", field="TAGGER_CONCURRENCY"
        )
    return int(text)


def _rate(text: str) -> str:
    if text:
        parse_rate(text, "TAGGER_RATE")
    return text


def _format(text: str) -> AnswerFormat:
    if text not in ("json_schema", "json_object", "none"):
        raise BadInput(
            f"TAGGER_ANSWER_FORMAT must be json_schema, json_object or none, not {text!r}", field="TAGGER_ANSWER_FORMAT"
        )
    return cast(AnswerFormat, text)


def _role(name: str, text: str) -> str:
    if not _ROLE.fullmatch(text):
        raise BadInput(
            f"TAGGER_{name} must be the name of a role in lower-case letters, digits and _, not {text!r}",
            field=f"TAGGER_{name}",
        )
    return text


def _tags(text: str, *, offline: bool) -> tuple[str, ...]:
    if not text:
        return TAGS
    tags = tuple(dict.fromkeys(tag.strip() for tag in text.split(",") if tag.strip()))
    wrong = [tag for tag in tags if not _TAG.fullmatch(tag)]
    if wrong or not 1 <= len(tags) <= 100:
        raise BadInput(
            "TAGGER_TAGS takes 1 to 100 tags of at most 40 characters, with commas between", field="TAGGER_TAGS"
        )
    if offline and (unknown := [tag for tag in tags if tag not in TAGS]):
        raise BadInput(
            f"TAGGER_TAGS: the offline tagger does not know {', '.join(unknown)}",
            fix=f"it knows {', '.join(TAGS)}; or set TAGGER_MODEL_URL",
            field="TAGGER_TAGS",
        )
    return tags
