"""Webhooks about ended tasks: which events go where, how a request is signed and sent. They never contain payloads."""

import base64
import hmac
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from onerow.core.durations import Duration, parse_duration
from onerow.core.ends import End
from onerow.core.errors import BadInput
from onerow.core.names import check_name
from onerow.core.suggest import did_you_mean
from onerow.core.task import Task
from onerow.core.times import since_epoch, spell
from onerow.engine.output.masking import Masker

EVENTS = ("completed", "failed", "cancelled")
_SHORTEST_SECRET = 16
_encode = msgspec.json.Encoder().encode


class NotTaken(Exception):
    """The receiver did not take an event. refused: it answered that it never will."""

    def __init__(self, reason: str, *, refused: bool = False) -> None:
        self.refused = refused
        super().__init__(reason)


class EventWebhook(msgspec.Struct, frozen=True):
    """Where the events of ended tasks go. name: of its cursor; it must stay the same when the URL changes."""

    name: str
    url: str
    secret: bytes
    events: frozenset[str]
    pipelines: frozenset[str]
    results: bool
    timeout: float
    headers: Mapping[str, str] = {}

    def send(self, event_id: str, body: bytes, sent_at: int) -> None:
        """Post one signed event, as Standard Webhooks describes; raise NotTaken unless the answer is 2xx."""
        from onerow.engine.control.http_post import NotAccepted, post

        signed = f"{event_id}.{sent_at}.".encode() + body
        signature = base64.b64encode(hmac.digest(self.secret, signed, "sha256")).decode()
        headers = {
            **self.headers,
            "Content-Type": "application/json",
            "User-Agent": "onerow",
            "webhook-id": event_id,
            "webhook-timestamp": str(sent_at),
            "webhook-signature": f"v1,{signature}",
        }
        try:
            post(self.url, body, headers, self.timeout)
        except NotAccepted as error:
            if error.status is None:
                raise NotTaken(str(error)) from None
            final = 300 <= error.status < 500 and error.status not in (401, 403, 404, 408, 425, 429)
            raise NotTaken(f"it answered {error.status}", refused=final) from None


def event_webhook(
    url: str,
    *,
    secret: str,
    name: str,
    events: Iterable[str],
    pipelines: Iterable[str],
    results: bool,
    timeout: Duration,
    headers: Mapping[str, str] | None,
) -> EventWebhook:
    """Build an EventWebhook from user input."""
    if not url.startswith(("http://", "https://")):
        raise BadInput(f"a webhook is an http:// or https:// address, not {url!r}", field="url")
    if len(secret) < _SHORTEST_SECRET:
        raise BadInput(f"the secret must have at least {_SHORTEST_SECRET} characters", field="secret")
    chosen = frozenset(events)
    for event in chosen:
        if event not in EVENTS:
            raise BadInput(f"no event {event!r}", fix=did_you_mean(event, EVENTS), field="events")
    raw = base64.b64decode(secret[6:]) if secret.startswith("whsec_") else secret.encode()
    return EventWebhook(
        check_name(name, "webhook"), url, raw, chosen or frozenset(EVENTS), frozenset(pipelines), results,
        parse_duration(timeout, "timeout").total_seconds(), dict(headers or {}),
    )  # fmt: skip


def event_id(task: Task, end: End) -> str:
    """Return the id of an event: the same at each repetition, so that a receiver can recognise it."""
    return f"{task.task_id}.{end.status}.{since_epoch(end.at)}"


def event_body(task: Task, end: End, masker: Masker, *, results: bool) -> bytes:
    """Return what a receiver gets. Titles and errors are masked; results only if asked for."""
    data: dict[str, Any] = {
        "task_id": task.task_id,
        "pipeline": task.pipeline,
        "phase": end.phase,
        "status": end.status,
        "title": masker.text(task.title),
        "user_id": task.user_id,
        "parent_id": task.parent_id,
        "created_at": spell(task.created_at),
        "ended_at": spell(end.at),
        "error": masker.text(end.error),
        "error_class": end.error_class,
    }
    if results and end.reopened_at is None:
        data["results"] = task.results
    return _encode({"type": f"task.{end.status}", "timestamp": spell(end.at), "data": data})
