"""Log in and out: the routes and the session cookie."""

from urllib.parse import quote

from starlette.responses import Response

from onerow.web.pages import login_page
from onerow.web.problems import Problem
from onerow.web.routing import Call, Endpoint, get, post
from onerow.web.security.requests import is_loopback
from onerow.web.security.roles import Role
from onerow.web.security.sessions import COOKIE, KEPT_FOR


def routes() -> list[Endpoint]:
    return [_show, _log_in, _log_out]


def to_log_in(call: Call) -> Response:
    """Return a redirect to the log-in page, which leads back to this one."""
    wanted = call.inner_path.lstrip("/")
    if call.request.url.query:
        wanted += f"?{call.request.url.query}"
    return call.redirect(f"login?next={quote(wanted, safe='')}" if wanted else "login")


@get("/login", Role.PUBLIC)
def _show(call: Call) -> Response:
    if not call.site.authenticator.access:
        return call.redirect("")
    return login_page(call, _inner_path(call.request.query_params.get("next", "")), None)


@post("/login", Role.PUBLIC, max_body=20_000)
def _log_in(call: Call) -> Response:
    authenticator, rate = call.site.authenticator, call.site.log_in_rate
    name, password, token = (call.form.get(field, "") for field in ("name", "password", "token"))
    wanted = _inner_path(call.form.get("next", ""))
    address = _address(call)
    rate.begin(name, address)
    cookie = authenticator.log_in(name, password, token.strip())
    if cookie is None:
        return login_page(call, wanted, Problem(401, "not logged in", "unknown name, password or token"))
    rate.succeeded(name, address)
    response = call.redirect(wanted)
    _set_cookie(call, response, cookie, KEPT_FOR)
    return response


@post("/logout", Role.PUBLIC)
def _log_out(call: Call) -> Response:
    sessions = call.site.sessions
    if (cookie := call.request.cookies.get(COOKIE)) and (session := sessions.read(cookie)) is not None:
        sessions.end(session)
    response = call.redirect("login")
    _set_cookie(call, response, "", 0)
    return response


def _address(call: Call) -> str:
    """Return the client's address; behind a proxy on this machine, the one that the proxy saw."""
    address = call.request.client.host if call.request.client else ""
    passed_on = call.request.headers.get("x-forwarded-for", "") if is_loopback(address) else ""
    return passed_on.rpartition(",")[2].strip()[:100] or address


def _set_cookie(call: Call, response: Response, value: str, max_age: int) -> None:
    # Lax: a link in a chat opens the dashboard logged in; requests that change something need the CSRF token anyway.
    # Behind a proxy that ends TLS the scheme is http; the browser's Origin says what it used.
    origin = call.request.headers.get("origin", "")
    response.set_cookie(
        COOKIE, value, max_age=max_age, path=call.request.scope.get("root_path") or "/",
        secure=call.request.url.scheme == "https" or origin.startswith("https://"), httponly=True, samesite="lax",
    )  # fmt: skip


def _inner_path(wanted: str) -> str:
    """Return a path of the dashboard, without its first slash; '' instead of an address elsewhere."""
    path, _, _ = wanted.partition("?")
    if len(wanted) > 2_000 or wanted.startswith(("/", "\\")) or ":" in path or "\\" in path or "//" in path:
        return ""
    return wanted if wanted.isprintable() and ".." not in path else ""
