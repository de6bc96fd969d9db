"""The ASGI application: finds the endpoint of a request, checks who may call it, runs it, and adds headers."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from onerow.core.errors import OnerowError
from onerow.web import login
from onerow.web.api import api_routes
from onerow.web.operational import operational_routes
from onerow.web.pages import error_page, page_routes
from onerow.web.pages.live import live_of
from onerow.web.problems import INTERNAL_ERROR, Problem, Refused, not_answered, problem_of, problem_response
from onerow.web.routing import Call, Endpoint
from onerow.web.security.headers import secure
from onerow.web.security.requests import (
    SAFE,
    check_same_site,
    has_bearer,
    needs_csrf_token,
    read_body,
)
from onerow.web.security.roles import ANONYMOUS, Identity, Role
from onerow.web.site import Site

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
LONGEST = 30.0
"""Seconds for which a request that only reads waits for the store."""
_log = logging.getLogger("onerow.web")


class Dashboard:
    """Dashboard and HTTP API of one queue, as an ASGI application that can be mounted under any prefix."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.endpoints: list[Endpoint] = [*login.routes(), *operational_routes(), *api_routes(), *page_routes()]
        self._routes = [(Route(each.path, _unused, methods=[each.method]), each) for each in self.endpoints]

    def close(self) -> None:
        """End the threads; the queue stays open, because its owner may use it elsewhere."""
        self.site.close()

    def end_streams(self) -> None:
        """End the event streams of live pages before the server stops, which waits for open answers."""
        live_of(self.site).end()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            request = Request(scope, receive)
            response = await self._respond(request)
            secure(MutableHeaders(raw=response.raw_headers))
            await response(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _respond(self, request: Request) -> Response:
        endpoint: Endpoint | None = None
        identity = ANONYMOUS
        try:
            self.site.hosts.check(request)
            endpoint = self._find(request)
            if endpoint.role is not Role.PUBLIC:
                identity = await self._identify(request)
            elif request.cookies:
                identity = await self.site.authenticator.find(request, self.site.pool) or ANONYMOUS
            self._authorize(request, endpoint, identity)
            call = Call(self.site, request, endpoint, identity)
            if request.method not in SAFE:
                await self._accept(request, call)
            return await self._run(call)
        except Refused as refused:
            problem = refused.problem
        except OnerowError as error:
            problem = problem_of(error)
        except Exception:
            _log.exception("%s %s failed", request.method, endpoint.path if endpoint else "")
            problem = INTERNAL_ERROR
        return self._show(request, endpoint, identity, problem)

    def _find(self, request: Request) -> Endpoint:
        allowed: set[str] = set()
        for route, endpoint in self._routes:
            match, child = route.matches(request.scope)
            if match is Match.FULL:
                request.scope["path_params"] = child["path_params"]
                return endpoint
            if match is Match.PARTIAL:
                allowed |= route.methods or set()
        if allowed:
            raise Refused(
                Problem(
                    405, "method not allowed", f"use {', '.join(sorted(allowed))}", allow=", ".join(sorted(allowed))
                )
            )
        raise Refused(Problem(404, "not found", "there is no such page"))

    async def _identify(self, request: Request) -> Identity:
        identity = await self.site.authenticator.find(request, self.site.pool)
        if identity is None:
            raise Refused(self.site.authenticator.challenge(request))
        return identity

    def _authorize(self, request: Request, endpoint: Endpoint, identity: Identity) -> None:
        if identity.role < endpoint.role:
            raise Refused(
                Problem(
                    403, "not allowed", f"this needs the role {endpoint.role.label}; {identity.name} has "
                    f"{identity.role.label}", fix="ask an administrator for the role",
                )
            )  # fmt: skip
        if endpoint.all_users and identity.user_id is not None:
            raise Refused(Problem(403, "not allowed", f"{identity.name} sees only the tasks of one user"))

    async def _accept(self, request: Request, call: Call) -> None:
        """Read the body of a request that changes something; raise Refused if another site sent it."""
        bearer = has_bearer(request)
        if not bearer:
            check_same_site(request)
        call.body = await read_body(request, call.endpoint.max_body)
        if not bearer and needs_csrf_token(request):
            given = request.headers.get("x-csrf-token") or ""
            if not given and request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
                given = call.form.get("csrf", "")
            if not self.site.sessions.is_csrf(given, call.identity.session):
                raise Refused(
                    Problem(
                        403, "no CSRF token", "the page that sent this is too old, or not ours",
                        fix="load the page again; programs send a bearer token, or JSON without cookies",
                    )
                )  # fmt: skip

    async def _run(self, call: Call) -> Response:
        handle: Any = call.endpoint.handle
        if inspect.iscoroutinefunction(handle):
            return await handle(call)  # type: ignore[no-any-return]
        running: Awaitable[Response] = self.site.pool.run(handle, call)
        if call.request.method not in SAFE:
            return await running  # it may change something, so its end is awaited
        try:
            return await asyncio.wait_for(running, LONGEST)
        except TimeoutError:
            raise Refused(not_answered(LONGEST)) from None

    def _show(self, request: Request, endpoint: Endpoint | None, identity: Identity, problem: Problem) -> Response:
        wants_page = "text/html" in request.headers.get("accept", "")
        is_page = endpoint.kind == "page" if endpoint is not None else wants_page
        if not is_page or not wants_page:
            return problem_response(problem)
        any_page = endpoint or Endpoint(method="GET", path="/", role=Role.PUBLIC, handle=_unused)
        call = Call(self.site, request, any_page, identity)
        if problem.status == 401 and request.method == "GET" and self.site.authenticator.access:
            return login.to_log_in(call)
        try:
            return error_page(call, problem)
        except Exception:  # a mistake in the template must not hide the problem
            _log.exception("the error page failed")
            return problem_response(problem)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            event = await receive()
            if event["type"] == "lifespan.shutdown":
                self.close()
            await send({"type": f"{event['type']}.complete"})
            if event["type"] == "lifespan.shutdown":
                return


def _unused(request: Any) -> Response:
    raise AssertionError("the dashboard calls its endpoints itself")
