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

from onerow.core.errors import InboxUnavailable, OnerowError
from onerow.core.messages import BadMessage, Message, Request, decode_object, read_request
from onerow.core.sizes import Size, parse_size
from onerow.inboxes.pipeline_option import pipeline_name
from onerow.inboxes.signatures import Forged, Scheme
from onerow.pipelines.pipeline import Pipeline

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_RETRY_AFTER = b"10"
_COUNT_AFTER = 5.0
_ANSWER_WITHIN = 30.0  # seconds
_COUNT_WITHIN = 5.0  # seconds: a request whose reading function hangs keeps counts from being written
_NOT_STORED = "not stored; send it again later"


class WebhookInbox:
    """Receive tasks and signals from signed requests.

    name: yours, for logs and `onerow inboxes`. scheme: how the sender signs (GitHub, Stripe, StandardWebhooks).
    pipeline: for messages that name none. read: your function from a message to a request; its `attributes` are the
    headers in lower case; by default the body has onerow's own message format. max_size: the largest body.
    """

    def __init__(
        self,
        name: str,
        scheme: Scheme,
        *,
        pipeline: Pipeline | str | None = None,
        read: Callable[[Message], Request] | None = None,
        max_size: Size = "1MB",
    ) -> None:
        self._name = name
        self._scheme = scheme
        self.pipeline = pipeline
        self._pipeline = pipeline_name(pipeline)
        self._own_read = read
        self.max_size: int = parse_size(max_size, "max_size")
        self._interrupted = threading.Event()
        self.hung: Callable[[], str] = lambda: ""  # says that `read` does not return

    @property
    def name(self) -> str:
        return f"webhook:{self._name}"

    def message(self, headers: Mapping[str, str], body: bytes) -> tuple[Message, "Answer"]:
        """Return a verified request as a message, with the answer that it will get; raise Forged."""
        now = datetime.now(UTC)
        delivery = self._scheme.verify(headers, body, now)
        answer = Answer()
        try:
            text = body.decode()
        except UnicodeDecodeError as error:
            text, answer.problem = "", f"the body is not UTF-8: {error.reason} at byte {error.start}"
        return Message(f"{self.name} {delivery}", text, now, attributes=dict(headers), receipt=answer), answer

    # ── the port ──

    def receive(self, wait: float) -> list[Message]:
        self._interrupted.wait(wait)  # requests are stored as they arrive
        self._interrupted.clear()
        if problem := self.hung():
            raise InboxUnavailable(problem)
        return []

    def read(self, message: Message) -> Request:
        if isinstance(message.receipt, Answer) and message.receipt.problem:
            raise BadMessage(message.receipt.problem, field="body")
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
            message.receipt.status, message.receipt.detail = 503, _NOT_STORED

    def interrupt(self) -> None:
        self._interrupted.set()

    def close(self) -> None:
        pass


class Answer(msgspec.Struct):
    """What a request is answered. problem: why its body can't be read."""

    status: int = 503
    detail: str = ""
    problem: str = ""


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
        if self._inbox.hung():
            return Answer(503, _NOT_STORED)
        try:
            await asyncio.wait_for(_in_thread(lambda: self._store([message])), _ANSWER_WITHIN)
        except (OnerowError, TimeoutError):
            return Answer(503, _NOT_STORED)
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
        with suppress(OnerowError, TimeoutError):  # they are written with the next ones
            await asyncio.wait_for(_in_thread(self.write_counts), _COUNT_WITHIN)


async def _in_thread(call: Callable[[], object]) -> None:
    """Make a call in a thread that does not keep the process from ending, unlike those of asyncio."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def end(error: BaseException | None) -> None:
        if not ended.cancelled():
            ended.set_result(None) if error is None else ended.set_exception(error)

    def run() -> None:
        failed = None
        try:
            call()
        except BaseException as error:
            failed = error
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(end, failed)

    threading.Thread(target=run, name="onerow-webhook", daemon=True).start()
    await ended


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
