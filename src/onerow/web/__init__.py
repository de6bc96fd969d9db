"""Dashboard and HTTP API: `app.mount("/queue", dashboard(queue, authorize=…))`, or `onerow web`."""

from collections.abc import Iterable

from onerow.engine.queue.queue import Queue
from onerow.web.app import Dashboard
from onerow.web.security.authentication import Authenticator, Authorize
from onerow.web.security.credentials import Access, read_access
from onerow.web.security.requests import LOOPBACK, Hosts
from onerow.web.security.roles import Identity, Role
from onerow.web.security.sessions import Sessions
from onerow.web.site import Site

__all__ = ["Access", "Dashboard", "Identity", "Role", "dashboard", "read_access"]


def dashboard(
    queue: Queue,
    *,
    authorize: Authorize | None = None,
    access: Access | None = None,
    hosts: Iterable[str] | None = None,
    session_key: str | bytes | None = None,
) -> Dashboard:
    """Return the dashboard and HTTP API of a queue as an ASGI application, to be mounted under any prefix.

    authorize: your function from a request to an Identity, the name of a role ('viewer', 'operator', 'admin') or None.
    access: bearer tokens and users. Without both, only this machine may call.
    hosts: the Host names to answer for ('queue.example.com', '*.example.com'); without `authorize` and `access`, those of
    the loopback address. session_key: signs session cookies and CSRF tokens; set it if several processes serve one address.
    """
    sessions = Sessions(session_key)
    authenticator = Authenticator(access or Access(), authorize, sessions)
    names = LOOPBACK if hosts is None and authenticator.open_to_this_machine else hosts
    return Dashboard(Site(queue, authenticator, sessions, Hosts(names)))
