"""A small server that answers as Discord does: webhooks, a bot's messages, nonces, limits and rate limits."""

import json
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

WEBHOOK_ID, WEBHOOK_TOKEN = "1000000000000000001", "pretended-webhook-token-0123456789abcdef"
CHANNEL_ID, BOT_TOKEN = "2000000000000000002", "pretended.bot.token-0123456789abcdef"


@dataclass
class Answer:
    """One answer: status, body, headers; `drop` closes the connection instead."""

    status: int
    body: dict[str, Any] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    drop: bool = False


def too_many(retry_after: float, *, everything: bool = False) -> Answer:
    """Return a 429 answer in Discord's format."""
    body = {"message": "You are being rate limited.", "retry_after": retry_after, "global": everything}
    scope = (
        {"X-RateLimit-Global": "true", "X-RateLimit-Scope": "global"} if everything else {"X-RateLimit-Scope": "user"}
    )
    return Answer(429, body, {"Retry-After": str(int(retry_after) + 1), **scope})


class DiscordServer:
    """Listens on a loopback port until it is closed; `messages` are the messages in the channel."""

    def __init__(self, *, limit: int | None = None, per: float = 2.0, nonces_for: float = 300.0) -> None:
        self.messages: list[dict[str, Any]] = []
        self.requests: list[dict[str, Any]] = []  # every request body, with path and time
        self.instead: deque[Answer] = deque()  # sent one by one instead of processing the request
        self.after_creating: deque[Answer] = deque()  # sent although the message was created
        self.before: Callable[[], None] = lambda: None  # called when a request arrives
        self.after: Callable[[], None] = lambda: None  # called after the message is created, before the answer
        self._limit, self._per, self._nonces_for = limit, per, nonces_for
        self._window: deque[float] = deque()
        self._nonces: dict[str, tuple[float, dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def api(self) -> str:
        return f"{self.url}/api/v10"

    @property
    def webhook(self) -> str:
        return f"{self.url}/api/webhooks/{WEBHOOK_ID}/{WEBHOOK_TOKEN}"

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment that makes `news` post to this server's webhook."""
        return {"NEWS_DISCORD_WEBHOOK": self.webhook}

    @property
    def bot_environment(self) -> dict[str, str]:
        """Return the environment that makes `news` post to this server as a bot."""
        return {"NEWS_DISCORD_TOKEN": BOT_TOKEN, "NEWS_DISCORD_CHANNEL": CHANNEL_ID, "NEWS_DISCORD_API": self.api}

    @property
    def urls(self) -> list[str]:
        """Return the article URL of each message, oldest first."""
        return [message["embeds"][0].get("url", "") for message in self.messages]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def answer(self, path: str, authorization: str, body: Any) -> Answer:
        """Return Discord's answer to a POST."""
        parts = urlsplit(path)
        self.before()
        with self._lock:
            self.requests.append({"path": path, "body": body, "at": time.monotonic()})
            if self.instead:
                return self.instead.popleft()
            match parts.path.strip("/").split("/"):
                case ["api", *_, "webhooks", webhook, token] if (webhook, token) == (WEBHOOK_ID, WEBHOOK_TOKEN):
                    # Discord ignores the nonce of a webhook: the same request twice creates two messages.
                    return self._create(body, nonce="", waits=parse_qs(parts.query).get("wait") == ["true"])
                case ["api", *_, "webhooks", _, _]:
                    return Answer(404, {"message": "Unknown Webhook", "code": 10015})
                case ["api", *_, "channels", channel, "messages"]:
                    if authorization != f"Bot {BOT_TOKEN}":
                        return Answer(401, {"message": "401: Unauthorized", "code": 0})
                    if channel != CHANNEL_ID:
                        return Answer(404, {"message": "Unknown Channel", "code": 10003})
                    return self._create(
                        body, str(body.get("nonce", "")) if body.get("enforce_nonce") else "", waits=True
                    )
        return Answer(404, {"message": "404: Not Found", "code": 0})

    def _create(self, body: Any, nonce: str, *, waits: bool) -> Answer:
        if (wrong := _wrong(body)) is not None:
            return Answer(400, {"message": "Invalid Form Body", "code": 50035, "errors": wrong})
        headers: dict[str, str] = {}
        if self._limit is not None:
            left, reset_after = self._take(self._limit)
            if left < 0:
                return too_many(reset_after)
            headers = {"X-RateLimit-Remaining": str(left), "X-RateLimit-Reset-After": f"{reset_after:.3f}"}
        now = time.monotonic()
        made_at, message = self._nonces.get(nonce, (0.0, None)) if nonce else (0.0, None)
        if message is None or now - made_at > self._nonces_for:
            message = {
                "id": str(3_000_000_000_000_000_000 + len(self.messages)),
                "channel_id": CHANNEL_ID,
                "timestamp": datetime.now(UTC).isoformat(),
                **body,
            }
            self.messages.append(message)
            if nonce:
                self._nonces[nonce] = (now, message)
        if self.after_creating:
            return self.after_creating.popleft()
        return Answer(200, message, headers) if waits else Answer(204, None, headers)

    def _take(self, limit: int) -> tuple[int, float]:
        """Count a request; return (requests left, seconds until the limit resets)."""
        now = time.monotonic()
        while self._window and now - self._window[0] >= self._per:
            self._window.popleft()
        if len(self._window) < limit:
            self._window.append(now)
            return limit - len(self._window), self._per - (now - self._window[0])
        return -1, self._per - (now - self._window[0])


def _wrong(body: Any) -> dict[str, str] | None:
    """Return the reason why Discord would refuse the body."""
    embeds = body.get("embeds", []) if isinstance(body, dict) else []
    if not embeds:
        return {"embeds": "BASE_TYPE_REQUIRED"}
    if len(str(body.get("nonce", ""))) > 25:
        return {"nonce": "BASE_TYPE_MAX_LENGTH 25"}
    for embed in embeds:
        for name, most in (("title", 256), ("description", 4096)):
            if len(embed.get(name, "").encode("utf-16-le")) // 2 > most:
                return {f"embeds.{name}": f"BASE_TYPE_MAX_LENGTH {most}"}
        if "url" in embed and not embed["url"].startswith(("http://", "https://")):
            return {"embeds.url": "URL_TYPE_INVALID_SCHEME"}
    return None


def _handler(discord: DiscordServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # one packet for headers and body; otherwise delayed ACKs cost 40 ms per answer

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length) or b"null")
            answer = discord.answer(self.path, self.headers.get("Authorization", ""), body)
            discord.after()
            if answer.drop:
                self.close_connection = True
                return
            text = b"" if answer.body is None else json.dumps(answer.body).encode()
            self.send_response(answer.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: Any) -> None: ...

    return Handler
