"""Endpoints: a method, a path, the role that it needs, and the function that answers; and the call that it gets."""

from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from time import monotonic
from typing import Any, Literal
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from onerow.engine.queue.queue import Queue
from onerow.engine.views import Views
from onerow.web.security.roles import Identity, Role
from onerow.web.site import Site

MAX_BODY = 1_000_000
CHECK_EVERY = 15.0
"""Seconds after which an open stream asks again whether its caller is allowed."""
Handler = Callable[["Call"], Response] | Callable[["Call"], Awaitable[Response]]


class Documented(msgspec.Struct, frozen=True, kw_only=True):
    """What OpenAPI says of an endpoint beside its path. The types are msgspec structs or other types with a schema."""

    tag: str
    summary: str
    request: Any = None
    query: Any = None  # a struct: one field for each query parameter
    answers: Mapping[int, Any] = {}  # type of the body by status; None: no body
    headers: Mapping[str, str] = {}  # request headers by name, with their meaning
    content_type: str = "application/json"  # of the answer


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One route. A `def` handler runs in the thread pool and may use the store; an `async def` one must not block.

    kind: how errors are shown, as problem+json or as a page. all_users: refused to callers that see one user only.
    """

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    role: Role
    handle: Handler
    kind: Literal["api", "page"] = "page"
    all_users: bool = False
    max_body: int = MAX_BODY
    documented: Documented | None = None


class Call:
    """One authenticated request: what an endpoint's function gets."""

    def __init__(self, site: Site, request: Request, endpoint: Endpoint, identity: Identity) -> None:
        self.site = site
        self.request = request
        self.endpoint = endpoint
        self.identity = identity
        self.body: bytes = b""
        self._checked_at = monotonic()

    @property
    def path(self) -> dict[str, str]:
        """The parameters in the path."""
        return self.request.path_params

    @cached_property
    def queue(self) -> Queue:
        """The queue, limited to one user's tasks if the caller is."""
        queue, user_id = self.site.queue, self.identity.user_id
        return queue if user_id is None else queue.for_user(user_id)

    @property
    def views(self) -> Views:
        return self.site.views(self.queue)

    @property
    def by(self) -> str:
        """Who acts, for the history of tasks."""
        return self.identity.name

    def may(self, role: Role) -> bool:
        return self.identity.role >= role

    async def still_allowed(self) -> bool:
        """Whether the caller is still who it was; asked by streams, which outlast a log-out and a change of roles."""
        if monotonic() - self._checked_at < CHECK_EVERY:
            return True
        self._checked_at = monotonic()
        return await self.site.authenticator.find(self.request, self.site.pool) == self.identity

    @property
    def base(self) -> str:
        """Relative URL of the dashboard's root: './' or '../' …, which holds under every prefix and behind every proxy.

        A template writes {{ base }}tasks for the page /tasks.
        """
        return "../" * (self.inner_path.count("/") - 1) or "./"

    @property
    def inner_path(self) -> str:
        """The path below the prefix that the dashboard is mounted under; it begins with a slash."""
        path, root = str(self.request.scope["path"]), str(self.request.scope.get("root_path", ""))
        return path[len(root) :] if root and path.startswith(f"{root}/") else path

    @property
    def csrf(self) -> str:
        """Token for forms (field `csrf`) and scripts (header X-CSRF-Token) of our pages."""
        return self.site.sessions.csrf(self.identity.session)

    @cached_property
    def form(self) -> dict[str, str]:
        """The fields of a posted form; of several with one name, the last."""
        return dict(self.form_fields)

    @cached_property
    def form_fields(self) -> list[tuple[str, str]]:
        return parse_qsl(self.body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=10_000)

    def redirect(self, path: str) -> Response:
        """Return a redirect to a path of the dashboard, given without its first slash; the browser follows with GET."""
        return RedirectResponse(self.base + path, 303)  # which quotes what a header can't hold


def get(path: str, role: Role, **options: Any) -> Callable[[Handler], Endpoint]:
    """Declare a page or stream: `@get("/tasks", Role.VIEWER)` makes an Endpoint of the function."""
    return lambda handle: Endpoint(method="GET", path=path, role=role, handle=handle, **options)


def post(path: str, role: Role, **options: Any) -> Callable[[Handler], Endpoint]:
    """Declare the receiver of a form; the CSRF token is checked before the function runs."""
    return lambda handle: Endpoint(method="POST", path=path, role=role, handle=handle, **options)
