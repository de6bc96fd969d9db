"""Who sends a request: a bearer token, a session, the host application's answer, or this machine itself."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request

from onerow.core.errors import BadInput
from onerow.engine.queue.operations import asking
from onerow.web.pool import Pool
from onerow.web.problems import Problem
from onerow.web.security.credentials import Access, hash_token
from onerow.web.security.requests import has_bearer, is_local_client
from onerow.web.security.roles import Identity, Role, parse_role
from onerow.web.security.sessions import COOKIE, Session, Sessions

Authorize = Callable[[Request], Identity | str | None] | Callable[[Request], Awaitable[Identity | str | None]]


class Authenticator:
    """Finds the identity of a request. Without credentials and without `authorize`, only this machine may call."""

    def __init__(self, access: Access, authorize: Authorize | None, sessions: Sessions) -> None:
        self.access = access
        self.sessions = sessions
        self._authorize: Any = authorize

    @property
    def open_to_this_machine(self) -> bool:
        return self._authorize is None and not self.access

    async def find(self, request: Request, pool: Pool) -> Identity | None:
        """Return who sends the request; None if it has no valid credential."""
        if self.access and has_bearer(request):
            return self.access.of_token(request.headers["authorization"][7:].strip())
        if self.access and COOKIE in request.cookies:
            session = self.sessions.read(request.cookies[COOKIE])
            if session is not None and (identity := self.of_session(session)) is not None:
                return identity
        if self._authorize is not None:
            return await self._ask_host(request, pool)
        if self.open_to_this_machine and is_local_client(request):
            return Identity(asking(""), Role.ADMIN, session="local")
        return None

    def of_session(self, session: Session) -> Identity | None:
        """Return the caller of a session, if the user or token still exists and is unchanged."""
        if session.kind == "token":
            identity = self.access.tokens.get(session.mark)
        else:
            identity = self.access.users[session.name][0] if session.name in self.access.users else None
            if session.mark != self.access.fingerprint(session.name):
                return None
        if identity is None:
            return None
        return Identity(identity.name, identity.role, identity.user_id, session.session_id)

    def log_in(self, name: str, password: str, token: str) -> str | None:
        """Return the session cookie for a user or a token; None if they are unknown. Takes about 0.1 s."""
        if token:
            identity = self.access.of_token(token)
            return None if identity is None else self.sessions.make("token", identity.name, hash_token(token))
        identity = self.access.of_password(name, password)
        return None if identity is None else self.sessions.make("user", name, self.access.fingerprint(name))

    def challenge(self, request: Request) -> Problem:
        """Return the problem of a request without a valid credential."""
        if self.open_to_this_machine:
            return Problem(
                403, "only from this machine",
                "no credential is set up, so only this machine may call, and not through a proxy",
                fix="start it with --access FILE or --token-file FILE, or mount it with authorize=…",
            )  # fmt: skip
        if not self.access:
            return Problem(403, "not allowed", "the application does not allow this caller to see the queue")
        return Problem(
            401, "not logged in", "this needs a valid credential",
            fix="log in, or send the header Authorization: Bearer TOKEN",
        )  # fmt: skip

    async def _ask_host(self, request: Request, pool: Pool) -> Identity | None:
        if inspect.iscoroutinefunction(self._authorize):
            answer = await self._authorize(request)
        else:
            answer = await pool.run(self._authorize, request)
        if inspect.isawaitable(answer):
            answer = await answer
        if answer is None or answer is False:
            return None
        if isinstance(answer, str):
            return Identity("dashboard", parse_role(answer), session="host:")
        if isinstance(answer, Identity):
            return Identity(answer.name, answer.role, answer.user_id, f"host:{answer.name}")
        raise BadInput(
            f"authorize returned {type(answer).__name__}",
            fix="return an Identity, the name of a role, or None",
            field="authorize",
        )
