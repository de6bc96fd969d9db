"""Signatures of webhooks: HMAC-SHA256 over the body, as Stripe, GitHub and Standard Webhooks send it.

Each scheme takes several secrets, so that one can be replaced while both are in use, and compares in constant time.
"""

import base64
import binascii
import hmac
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Protocol

import msgspec

from onerow.core.durations import Duration, parse_duration
from onerow.core.errors import BadInput

TOLERANCE = timedelta(minutes=5)
_SHORTEST_SECRET = 8
_LONGEST_ID = 200


class Forged(Exception):
    """The signature is missing, wrong or too old; the sender learns no more than that."""


class Scheme(Protocol):
    """How one provider signs its requests and names them."""

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> str:
        """Return the id of the delivery, the same at each repetition; raise Forged if the signature does not hold.

        headers: with names in lower case. body: as it was received. now: the current time.
        """


class GitHub:
    """X-Hub-Signature-256 over the body. GitHub signs neither time nor id: equal bodies count as one delivery.

    secrets: as set in GitHub; several while one replaces another.
    """

    def __init__(self, *secrets: str) -> None:
        self._secrets = _checked(secrets)

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> str:
        given = headers.get("x-hub-signature-256", "")
        _require(given.startswith("sha256="), "no signature")
        _require_one(self._secrets, body, [given[7:].lower()])
        # Not X-GitHub-Delivery, which is not signed: a signed body could be sent again under other ids.
        return sha256(body).hexdigest()


class Stripe:
    """Stripe-Signature: t=TIME,v1=HEX over 'TIME.BODY'; the id is that of the event in the body.

    secrets: as shown by Stripe; several while one replaces another. tolerance: how old a request may be.
    """

    def __init__(self, *secrets: str, tolerance: Duration = TOLERANCE) -> None:
        self._secrets = _checked(secrets)
        self._tolerance = parse_duration(tolerance, "tolerance")

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> str:
        parts = [part.strip().partition("=") for part in headers.get("stripe-signature", "").split(",")]
        sent_at = next((value for key, _, value in parts if key == "t"), "")
        _require_recent(sent_at, now, self._tolerance)
        given = [value.lower() for key, _, value in parts if key == "v1"]
        _require_one(self._secrets, sent_at.encode() + b"." + body, given)
        return _body_id(body) or sha256(body).hexdigest()


class StandardWebhooks:
    """Headers webhook-id, webhook-timestamp and webhook-signature over 'ID.TIME.BODY', as standardwebhooks.com describes.

    secrets: text, or 'whsec_' and base64; several while one replaces another. tolerance: how old a request may be.
    """

    def __init__(self, *secrets: str, tolerance: Duration = TOLERANCE) -> None:
        self._secrets = [_decoded(secret) for secret in _checked(secrets)]
        self._tolerance = parse_duration(tolerance, "tolerance")

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> str:
        delivery, sent_at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        _require(bool(delivery), "no id")
        _require_recent(sent_at, now, self._tolerance)
        given = [part[3:] for part in headers.get("webhook-signature", "").split() if part.startswith("v1,")]
        signed = f"{delivery}.{sent_at}.".encode() + body
        expected = [base64.b64encode(hmac.digest(secret, signed, "sha256")).decode() for secret in self._secrets]
        _require(_any_equal(expected, given), "the signature does not match")
        return delivery


def _checked(secrets: Sequence[str]) -> list[bytes]:
    if not secrets:
        raise BadInput("a webhook needs a secret: without one anyone could add tasks", field="secret")
    if any(len(secret) < _SHORTEST_SECRET for secret in secrets):
        raise BadInput(f"a secret must be a text of at least {_SHORTEST_SECRET} characters", field="secret")
    return [secret.encode() for secret in secrets]


def _decoded(secret: bytes) -> bytes:
    if not secret.startswith(b"whsec_"):
        return secret
    try:
        return base64.b64decode(secret[6:], validate=True)
    except binascii.Error:
        raise BadInput("the secret after 'whsec_' must be base64", field="secret") from None


def _require(holds: bool, reason: str) -> None:
    if not holds:
        raise Forged(reason)


def _require_one(secrets: Sequence[bytes], signed: bytes, given: Sequence[str]) -> None:
    expected = [hmac.digest(secret, signed, "sha256").hex() for secret in secrets]
    _require(_any_equal(expected, given), "the signature does not match")


def _any_equal(expected: Sequence[str], given: Sequence[str]) -> bool:
    # All pairs are compared, so that the time does not tell which one was close.
    return sum(hmac.compare_digest(one.encode(), other.encode()) for one in expected for other in given[:10]) > 0


def _require_recent(text: str, now: datetime, tolerance: timedelta) -> None:
    _require(text.isascii() and text.isdigit() and len(text) < 12, "no time")
    _require(abs(now.timestamp() - int(text)) <= tolerance.total_seconds(), "too old or too early")


def _body_id(body: bytes) -> str:
    """Return the id in a body; '' if it has none that can name a message."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    own = found.get("id") if isinstance(found, dict) else None
    return own if isinstance(own, str) and own.isprintable() and len(own) <= _LONGEST_ID else ""
