"""Alerts about failed, unserved and overdue tasks, and their receivers. Alerts never contain payloads."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Literal

import msgspec

from onerow.core.durations import Duration, parse_duration
from onerow.core.errors import BadInput
from onerow.core.task import Task
from onerow.engine.events.hooks import name_of
from onerow.engine.output.masking import NO_SECRETS, Masker
from onerow.engine.output.terminal import neutral

_encode = msgspec.json.Encoder().encode


class Alert(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One alert."""

    kind: Literal["failed", "unserved", "overdue"]  # what happened
    text: str  # one sentence
    at: str  # when
    pipeline: str
    phase: str
    task_id: str = ""
    title: str = ""
    error: str = ""
    error_class: str = ""
    waiting: int = 0  # how many tasks are due

    @property
    def key(self) -> str:
        """Identifies the problem, so that its alert is not repeated too often."""
        return f"{self.kind}/{self.pipeline}/{self.phase}"


Send = Callable[[Sequence[Alert]], None]


class Undelivered(Exception):
    """The receiver did not accept an alert; sending it again may succeed."""


class Webhook:
    """Posts alerts as JSON: {"text": one line per alert, "alerts": [...]}; many chat webhooks display `text`.

    url: where to post them. timeout: how long one request may take.
    """

    def __init__(self, url: str, *, headers: Mapping[str, str] | None = None, timeout: Duration = "10s") -> None:
        if not url.startswith(("http://", "https://")):
            raise BadInput(f"a webhook is an http:// or https:// address, not {url!r}", field="url")
        self.url = url
        self._headers = {"Content-Type": "application/json", "User-Agent": "onerow", **(headers or {})}
        self._timeout = parse_duration(timeout, "timeout").total_seconds()

    def __call__(self, alerts: Sequence[Alert]) -> None:
        from onerow.engine.control.http_post import NotAccepted, post

        body = _encode({"text": "\n".join(alert.text for alert in alerts), "alerts": alerts})
        try:
            post(self.url, body, self._headers, self._timeout)
        except NotAccepted as error:
            raise Undelivered(f"the webhook did not take it: {error}") from None


class AlertRule(msgspec.Struct, frozen=True):
    """Which alerts to send, and to which receiver."""

    send: Send
    failures: bool
    unserved_for: timedelta | None
    overdue_for: timedelta | None
    again_after: timedelta

    @property
    def name(self) -> str:
        """Name of the receiver; never a URL, which may contain a secret."""
        return "a webhook" if isinstance(self.send, Webhook) else name_of(self.send)


def watch(
    to: str | Webhook | Send,
    *,
    failures: bool = True,
    unserved_for: Duration | None = "5m",
    overdue_for: Duration | None = None,
    again_after: Duration = "1h",
) -> AlertRule:
    """Build an alert rule from user input."""
    if not isinstance(to, str) and not callable(to):
        raise BadInput(f"alerts go to a webhook's URL or to a function, not {to!r}", field="to")
    send: Send = Webhook(to) if isinstance(to, str) else to
    return AlertRule(
        send,
        failures,
        None if unserved_for is None else parse_duration(unserved_for, "unserved_for"),
        None if overdue_for is None else parse_duration(overdue_for, "overdue_for"),
        parse_duration(again_after, "again_after"),
    )


def of_failure(task: Task, at: str, masker: Masker = NO_SECRETS) -> Alert:
    """Return the alert for a permanently failed task; secrets in its title and error are masked."""
    title, error = masker.text(task.title), masker.text(task.error or "")
    name = f"{title!r} " if title else ""
    return Alert(
        kind="failed",
        text=neutral(f"{task.pipeline}: {name}({task.task_id}) failed in {task.phase}: {error}"),
        at=at,
        pipeline=task.pipeline,
        phase=task.phase,
        task_id=task.task_id,
        title=title,
        error=error,
        error_class=task.error_class or "",
    )
