"""A fake server of YouTube's resumable upload protocol and OAuth, with fault injection."""

import json
import re
from hashlib import sha256
from threading import Event
from typing import Any

from apps.video_studio.tests.serving import Handler, Server
from tests.runner.seeded import new_name

_PIECE = 256 * 1024


class Session:
    """One upload: its metadata, and the bytes received so far."""

    def __init__(self, body: dict[str, Any], size: int) -> None:
        self.body = body
        self.size = size
        self.received = bytearray()
        self.video = ""


class _Protocol(Handler):
    owner: "YouTubeServer"  # type: ignore[misc]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/token":
            self._token(body.decode())
        elif self.path == "/upload/youtube/v3/videos?uploadType=resumable&part=snippet,status":
            if self._refused("begin"):
                return
            session = new_name("session")
            self.owner.sessions[session] = Session(json.loads(body), int(self.headers["X-Upload-Content-Length"]))
            self.answer(200, Location=f"{self.owner.url}/session/{session}")
        else:
            self.answer(404)

    def do_PUT(self) -> None:
        session = self.owner.sessions.get(self.path.removeprefix("/session/"))
        span = self.headers["Content-Range"]
        length = int(self.headers["Content-Length"])
        asks = span.startswith("bytes */")
        self.owner.heard.append(span)
        if session is None:
            self.rfile.read(length)
            self.answer(404)
        elif not self._refused("ask" if asks else "send", length):
            if asks:
                self._state(session)
            else:
                self._take(session, span, length)

    def _take(self, session: Session, span: str, length: int) -> None:
        found = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", span)
        assert found is not None, span
        start, end, size = map(int, found.groups())
        if start != len(session.received) or size != session.size or end - start + 1 != length:
            self.rfile.read(length)
            return self.answer(400, b'{"error":{"errors":[{"reason":"badContentRange"}]}}')
        fault = self.owner.next_fault("take")
        if fault == "drop":
            # Half of the body arrives, of which complete pieces count; then the connection is closed.
            arrived = self.rfile.read(length // 2)
            session.received += arrived[: len(arrived) // _PIECE * _PIECE]
            return self.hang_up()
        if fault == "hang":
            self.owner.hung.set()
            self.owner.released.wait(900)
            return self.hang_up()
        came = self.rfile.read(length)
        if fault == "ignore":
            return self._state(session)
        session.received += came
        if len(session.received) == session.size and not session.video:
            session.video = f"v{len(self.owner.published) + 1}"
            self.owner.published.append(session)
            if fault == "publish and drop":
                return self.hang_up()
            if fault == "publish and hang":
                self.owner.hung.set()
                self.owner.released.wait(900)
                return self.hang_up()
            if fault == "publish and forget":
                self.owner.sessions.clear()
                return self.hang_up()
        return self._state(session)

    def _state(self, session: Session) -> None:
        if session.video:
            self.answer(201, json.dumps({"id": session.video, "kind": "youtube#video"}).encode())
        elif session.received:
            self.answer(308, Range=f"bytes=0-{len(session.received) - 1}")
        else:
            self.answer(308)

    def _token(self, form: str) -> None:
        self.owner.tokens_asked.append(form)
        if self.owner.next_fault("token") == "revoked":
            self.answer(400, b'{"error":"invalid_grant"}')
        else:
            self.owner.token = f"access-{len(self.owner.tokens_asked)}"
            self.answer(200, json.dumps({"access_token": self.owner.token, "expires_in": 3599}).encode())

    def _refused(self, moment: str, length: int = 0) -> bool:
        """Inject the next fault for this request, if there is one; return whether it was answered."""
        if self.headers["Authorization"] != f"Bearer {self.owner.token}" or not self.owner.token:
            fault = "401"
        else:
            fault = self.owner.next_fault(moment)
        if not fault:
            return False
        self.rfile.read(length)
        status, _, reason = fault.partition(" ")
        if status == "stale":
            self.owner.token, status = "", "401"
        headers = {"Retry_After": "7"} if status == "429" else {}
        body = {"error": {"code": int(status), "errors": [{"reason": reason or "other"}]}}
        self.answer(int(status), json.dumps(body).encode(), **headers)
        return True


class YouTubeServer(Server):
    """Sessions, published videos, and pending faults: (moment, fault); a moment is token, begin, ask, send or take."""

    handler = _Protocol

    def __init__(self) -> None:
        super().__init__()
        self.hung = Event()
        self.token = ""
        self.tokens_asked: list[str] = []
        self.sessions: dict[str, Session] = {}
        self.published: list[Session] = []
        self.heard: list[str] = []
        self.faults: list[tuple[str, str]] = []

    def next_fault(self, moment: str) -> str:
        for number, (when, fault) in enumerate(self.faults):
            if when == moment:
                del self.faults[number]
                return fault
        return ""

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment that makes a studio publish to this server."""
        return {
            "STUDIO_TARGET": "youtube",
            "STUDIO_YOUTUBE_BASE_URL": self.url,
            "STUDIO_YOUTUBE_TOKEN_URL": f"{self.url}/token",
            "STUDIO_YOUTUBE_CLIENT_ID": "client",
            "STUDIO_YOUTUBE_CLIENT_SECRET": "client-secret-value",
            "STUDIO_YOUTUBE_REFRESH_TOKEN": "refresh-token-value",
            "STUDIO_YOUTUBE_CHUNK_KB": "256",
            "STUDIO_YOUTUBE_TIMEOUT": "20",
            "STUDIO_RETRY_WAIT": "10ms",
        }

    def digests(self) -> list[str]:
        return [sha256(session.received).hexdigest() for session in self.published]
