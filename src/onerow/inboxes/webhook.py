"""Signed HTTP posts as an inbox: an ASGI application that answers 200 only after the row is stored.

There is nothing to poll: the application stores each request as it arrives, through the same receiver as every inbox.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec

from onerow.core.errors import OnerowError
from onerow.core.messages import Message, Request, decode_object, read_request
from onerow.core.sizes import Size, parse_size
from onerow.inboxes.signatures import Forged, Scheme

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_RETRY_AFTER = b"10"
_COUNT_AFTER = 5.0


class WebhookInbox:
    """Receive tasks and signals from signed requests.

    scheme: how the sender signs (GitHub, Stripe, StandardWebhooks). read: your function from a message to a request; its
    `attributes` are the headers in lower case. By default the body has onerow's own message format. max_size: of a body.
    """

    def __init__(
        self,
        name: str,
        scheme: Scheme,
        *,
        pipeline: str | None = None,
        read: Callable[[Message], Request] | None = None,
        max_size: Size = "1MB",
    ) -> None:
        self._name = name
        self._scheme = scheme
        self._pipeline = pipeline
        self._own_read = read
        self.max_size: int = parse_size(max_size, "max_size")
        self._interrupted = threading.Event()

    @property
    def name(self) -> str:
        return f"webhook:{self._name}"

    def message(self, headers: Mapping[str, str], body: bytes) -> tuple[Message, "Answer"]:
        """Return a verified request as a message, with the answer that it will get; raise Forged."""
        now = datetime.now(UTC)
        delivery = self._scheme.verify(headers, body, now)
        answer = Answer()
        text = body.decode(errors="replace")
        return Message(f"{self.name} {delivery}", text, now, attributes=dict(headers), receipt=answer), answer

    # ── the port ──

    def receive(self, wait: float) -> list[Message]:
        self._interrupted.wait(wait)  # requests are stored as they arrive
        self._interrupted.clear()
        return []

    def read(self, message: Message) -> Request:
        if self._own_read is not None:
            return self._own_read(message)
        return read_request(decode_object(message.body), self._pipeline, message.message_id)

    def acknowledge(self, messages: Sequence[Message]) -> None:
        for message in messages:
            message.receipt.status = 200

    def reject(self, message: Message, reason: str) -> None:
        message.receipt.status, message.receipt.detail = 422, reason

    def release(self, messages: Sequence[Message], after: float) -> None:
        for message in messages:
            message.receipt.status, message.receipt.detail = 503, "not stored; send it again later"

    def interrupt(self) -> None:
        self._interrupted.set()

    def close(self) -> None:
        pass


class Answer(msgspec.Struct):
    """What a request is answered."""

    status: int = 503
    detail: str = ""


class WebhookApp:
    """The ASGI application of a webhook inbox.

    store: stores messages and settles them with the inbox. refuse: counts a request with a wrong signature.
    write_counts: called some seconds after requests, and at the end of the application if its server says so.
    """

    def __init__(
        self,
        inbox: WebhookInbox,
        store: Callable[[Sequence[Message]], None],
        refuse: Callable[[], None],
        write_counts: Callable[[], None],
    ) -> None:
        self._inbox = inbox
        self._store = store
        self._refuse = refuse
        self.write_counts = write_counts
        self._writing: asyncio.Task[None] | None = None

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            answer = await self._answer(scope, receive)
            await _respond(send, answer)
        else:
            raise RuntimeError(f"a webhook serves http, not {scope['type']}")

    async def _answer(self, scope: MutableMapping[str, Any], receive: Receive) -> Answer:
        if scope["method"] != "POST":
            return Answer(405, "send a POST request")
        body = await _body(receive, self._inbox.max_size)
        if body is None:
            return Answer(413, f"at most {self._inbox.max_size:,} bytes are accepted")
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            message, answer = self._inbox.message(headers, body)
        except Forged:
            self._refuse()
            self._write_counts_soon()
            return Answer(401, "the signature is missing, wrong or too old")
        try:
            await asyncio.to_thread(self._store, [message])
        except OnerowError:
            return Answer(503, "not stored; send it again later")
        self._write_counts_soon()
        return answer

    def _write_counts_soon(self) -> None:
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._count_later())

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            event = await receive()
            if event["type"] == "lifespan.shutdown":
                await self._count()
            await send({"type": f"{event['type']}.complete"})
            if event["type"] == "lifespan.shutdown":
                return

    async def _count_later(self) -> None:
        await asyncio.sleep(_COUNT_AFTER)
        await self._count()

    async def _count(self) -> None:
        with suppress(OnerowError):  # they are written with the next ones
            await asyncio.to_thread(self.write_counts)


async def _body(receive: Receive, limit: int) -> bytes | None:
    """Return the body of a request; None if it is larger than the limit."""
    parts, size = [], 0
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            return None
        parts.append(event.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            return None
        if not event.get("more_body", False):
            return b"".join(parts)


async def _respond(send: Send, answer: Answer) -> None:
    headers = [(b"content-type", b"application/json")]
    if answer.status == 503:
        headers.append((b"retry-after", _RETRY_AFTER))
    if answer.status == 405:
        headers.append((b"allow", b"POST"))
    body = msgspec.json.encode({"detail": answer.detail} if answer.detail else {})
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
