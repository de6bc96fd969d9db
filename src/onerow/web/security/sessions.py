"""Signed session cookies and CSRF tokens. The server keeps no sessions, only the ids of those that were logged out."""

import base64
import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable

import msgspec

from onerow.core.errors import BadInput

COOKIE = "onerow_session"
KEPT_FOR = 12 * 3600
_MOST_ENDED = 100_000


class Session(msgspec.Struct, frozen=True, array_like=True):
    """What a session cookie says. kind: 'user' or 'token'; mark: fingerprint of the password, or digest of the token."""

    kind: str
    name: str
    mark: str
    ends_at: int
    session_id: str


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Session).decode


class Sessions:
    """Makes and reads cookies and CSRF tokens. key: the same in all processes that serve one address."""

    def __init__(self, key: str | bytes | None = None, clock: Callable[[], float] = time.time) -> None:
        given = key.encode() if isinstance(key, str) else key
        if given is not None and len(given) < 32:
            raise BadInput("the session key must have at least 32 characters", field="session_key")
        self._key = hashlib.sha256(given or secrets.token_bytes(32)).digest()
        self._clock = clock
        self._ended: dict[str, int] = {}
        self._lock = threading.Lock()

    def make(self, kind: str, name: str, mark: str) -> str:
        """Return the value of a new session cookie."""
        session = Session(kind, name, mark, int(self._clock()) + KEPT_FOR, secrets.token_urlsafe(16))
        text = base64.urlsafe_b64encode(_encode(session)).rstrip(b"=").decode()
        return f"{text}.{self._signature('session', text)}"

    def read(self, cookie: str) -> Session | None:
        """Return the session of a cookie; None if it is forged, too old or was ended."""
        text, _, signature = cookie.partition(".")
        if not hmac.compare_digest(self._signature("session", text).encode(), signature.encode("utf-8", "replace")):
            return None
        session = _decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        if session.ends_at <= self._clock() or session.session_id in self._ended:
            return None
        return session

    def end(self, session: Session) -> None:
        """Log a session out: its cookie is refused by this process from now on."""
        with self._lock:
            now = self._clock()
            self._ended = {key: ends_at for key, ends_at in self._ended.items() if ends_at > now}
            if len(self._ended) < _MOST_ENDED:
                self._ended[session.session_id] = session.ends_at

    def csrf(self, bound_to: str) -> str:
        """Return the CSRF token of a session or caller."""
        return self._signature("csrf", bound_to)

    def is_csrf(self, token: str, bound_to: str) -> bool:
        return hmac.compare_digest(token.encode("utf-8", "replace"), self.csrf(bound_to).encode())

    def _signature(self, purpose: str, text: str) -> str:
        return hmac.new(self._key, f"{purpose}:{text}".encode("utf-8", "replace"), "sha256").hexdigest()
