"""Posts one message to Discord, through a webhook or as a bot. The outcome is a value, never an exception."""

import base64
import hashlib
import logging
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from news_publisher.message import NONCE
from news_publisher.rate_limits import RateLimits
from onerow import BadInput
from onerow.engine.output.masking import Masker

API = "https://discord.com/api/v10"
_TIMEOUT = httpx.Timeout(10.0, connect=5.0)


@dataclass(frozen=True)
class Posted:
    """The message exists, with this id."""

    message_id: str


@dataclass(frozen=True)
class Limited:
    """The message does not exist: Discord asked to retry later, or could not be reached."""

    after: float  # seconds
    reason: str = "its rate limit"


@dataclass(frozen=True)
class Refused:
    """The message does not exist: Discord refused it."""

    reason: str
    to_all: bool = False  # every article would be refused: the webhook, token or channel is wrong


@dataclass(frozen=True)
class Unknown:
    """The message may exist: the request was sent, but its outcome is unknown."""

    reason: str


Outcome = Posted | Limited | Refused | Unknown


class Discord:
    """One channel to post to. `deduplicates`: the same key, sent again within minutes, gives the same message."""

    mode = "webhook"
    deduplicates = False
    advice = "set NEWS_DISCORD_WEBHOOK to the URL of a webhook that exists"

    def __init__(self, webhook_url: str) -> None:
        _check_url(webhook_url, "the webhook's URL")
        # Without `wait` Discord answers before the message exists, without an id.
        url = str(httpx.URL(webhook_url).copy_merge_params({"wait": "true"}))
        self._begin(url, {}, secrets=[webhook_url, url, *urlsplit(webhook_url).path.split("/")[-1:]])

    def _begin(self, url: str, headers: dict[str, str], secrets: list[str]) -> None:
        self.limits = RateLimits()
        self.target = hashlib.sha256(url.encode()).hexdigest()[:12]  # identifies the target without revealing its URL
        self._url = url
        self._masker = Masker(secrets)
        self._http = httpx.Client(
            timeout=_TIMEOUT, headers={"User-Agent": "DiscordBot (news-publisher, 0.1)", **headers}
        )
        # httpx logs each requested URL, and the webhook's URL is a secret.
        self._filter = _Masked(self._masker)
        logging.getLogger("httpx").addFilter(self._filter)

    def __repr__(self) -> str:
        return f"<Discord {self.mode} {self.target}>"

    def close(self) -> None:
        self._http.close()
        logging.getLogger("httpx").removeFilter(self._filter)

    def post(self, message: dict[str, Any], key: str) -> Outcome:
        """Send the message; the caller must wait until `limits.wait()` is 0."""
        try:
            answer = self._http.post(self._url, json=self._body(message, key))
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            return Limited(self.limits.unreachable(), f"Discord can't be reached ({type(error).__name__})")
        except httpx.HTTPError as error:  # the request may have arrived: the outcome is unknown
            return Unknown(f"the connection broke while posting ({type(error).__name__})")
        self.limits.reached(answer.headers)
        return self._read(answer)

    def _body(self, message: dict[str, Any], key: str) -> dict[str, Any]:
        return message

    def _read(self, answer: httpx.Response) -> Outcome:
        body = _json(answer)
        if answer.status_code == 429:
            after, _ = self.limits.refused(answer.headers, body)
            return Limited(after)
        if answer.is_success and isinstance(body, dict) and body.get("id"):
            return Posted(str(body["id"]))
        if answer.is_success or answer.status_code >= 500:
            return Unknown(f"Discord answered {answer.status_code} without a message")
        message = body.get("message", "") if isinstance(body, dict) else ""
        message = self._masker.text(str(message))[:200]
        reason = f"Discord answered {answer.status_code} {message}".strip()
        if answer.status_code in (401, 403, 404):
            return Refused(f"{reason}; {self.advice}", to_all=True)
        return Refused(reason)


class BotDiscord(Discord):
    """Posts to a channel as a bot; Discord deduplicates these by nonce."""

    mode = "bot"
    deduplicates = True
    advice = "NEWS_DISCORD_TOKEN must be the bot's token, NEWS_DISCORD_CHANNEL the id of a channel where it may write"

    def __init__(self, token: str, channel_id: str, *, api: str = API) -> None:
        _check_url(api, "the API's URL")
        if not channel_id.isdigit():
            raise BadInput(f"a channel's id is a number, not {channel_id!r}", field="channel_id")
        url = f"{api.rstrip('/')}/channels/{channel_id}/messages"
        self._begin(url, {"Authorization": f"Bot {token}"}, secrets=[token])

    def _body(self, message: dict[str, Any], key: str) -> dict[str, Any]:
        return {**message, "nonce": nonce_of(key), "enforce_nonce": True}


def nonce_of(key: str) -> str:
    """Return a nonce of 25 characters that depends only on the key."""
    return base64.b32encode(hashlib.sha256(key.encode()).digest()).decode().lower()[:NONCE]


def _check_url(url: str, what: str) -> None:
    parts = urlsplit(url)
    loopback = parts.hostname in ("127.0.0.1", "localhost", "::1")
    if not parts.hostname or (parts.scheme != "https" and not (loopback and parts.scheme == "http")):
        raise BadInput(f"{what} must begin with https:// (it isn't shown here, because it is a secret)", field="url")


def _json(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except ValueError:
        return None


class _Masked(logging.Filter):
    def __init__(self, masker: Masker) -> None:
        super().__init__()
        self._masker = masker

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = self._masker.text(record.getMessage()), ()
        return True
