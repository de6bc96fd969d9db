"""All routes of the pages, the log-in page and the error page."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import chain
from typing import Any
from urllib.parse import urlencode

from starlette.responses import HTMLResponse, Response, StreamingResponse

from onerow.core.errors import OnerowError
from onerow.core.query import KEYS
from onerow.engine.queue import task_log
from onerow.web.pages import acting, adding, live, static
from onerow.web.pages.language import COOKIE as LANGUAGE_COOKIE
from onerow.web.pages.language import LANGUAGES, language
from onerow.web.pages.page import Ask, Page
from onerow.web.pages.rendering import environment, fragment, frame, language_of, lone, sheet, variant_of
from onerow.web.pages.screens import RAIL, SCREENS
from onerow.web.pages.task import TASK
from onerow.web.pages.tasks import COLUMNS, COOKIE, TASK_LISTS, complete, exported, matched_text
from onerow.web.problems import Problem, Refused
from onerow.web.routing import Call, Endpoint, get, post
from onerow.web.security.roles import Role

_by_path = {page.path: page for page in (*SCREENS, *TASK_LISTS, TASK)}
KEY_LIST = [
    ("?", "This help"), ("/", "Search"), ("Ctrl k", "Go to a page or act"), ("g o", "Overview"), ("g b", "Board"),
    ("g t", "Tasks"), ("g f", "Failures"), ("g d", "Waiting room"), ("g p", "Phases"), ("g w", "Workers"),
    ("g s", "Schedules"), ("g x", "Operations"), ("g y", "System"), ("j k", "Next or previous row"), ("x", "Mark a row"),
    ("Shift x", "Mark up to here"), ("a", "Mark all matching tasks"), ("o", "Open the row"), ("[ ]", "First page, next page"),
    (".", "Show new rows; live on or off"), ("u", "UTC or local time"), ("t", "Theme"), ("n", "New task"),
    ("r", "Retry"), ("Shift R", "Replay from an earlier phase"), ("s", "Reschedule"), ("m", "Send a signal"),
    ("+", "Priority"), ("Shift C", "Cancel tasks"), ("Shift P", "Pause or resume"), ("e", "Export"), ("Esc", "Back"),
]  # fmt: skip


def page_routes() -> list[Endpoint]:
    """Return the routes of all pages."""
    shown = [_page_endpoint(page) for page in _by_path.values()]
    return [
        *shown,
        _live,
        _complete,
        _count,
        _export,
        _log,
        _help,
        _language,
        _new,
        _add,
        *acting.routes(),
        *static.routes(),
    ]


def _page_endpoint(page: Page) -> Endpoint:
    def answer(call: Call) -> Response:
        return _show(call, page)

    return Endpoint(method="GET", path=f"/{page.path}", role=page.role, handle=answer, all_users=page.all_users)


def _ask(call: Call) -> Ask:
    pairs = [pair for pair in call.request.query_params.multi_items() if pair[0] != "lang"]
    return Ask(call.queue, call.views, pairs, call.site.scale)


def _show(call: Call, page: Page) -> Response:
    ask = _ask(call)
    if page.path == "tasks":
        chosen = ask.all("col") or call.request.cookies.get(COOKIE, "").split("|")
        ask.pairs = [pair for pair in ask.pairs if pair[0] != "col"] + [
            ("col", name) for name in chosen if name in COLUMNS
        ]
    values, rail = page.values(ask), RAIL.read(ask)
    query = urlencode(ask.pairs)
    subtitle = ask.get("pipeline") or (values["task"]["title"] if page is TASK else "")
    response = _framed(
        call, page.template, page.title, values | {"query": ask.get("q"), "subtitle": subtitle}, rail,
        active=page.path, view=f"{page.path}?{query}" if query else page.path, charts=page.charts,
    )  # fmt: skip
    if page.path == "tasks" and ask.all("col"):
        response.set_cookie(COOKIE, "|".join(ask.all("col")), max_age=31_536_000, samesite="lax", httponly=True)
    return response


def _framed(call: Call, template: str, title: str, values: Any, rail: Any, **more: Any) -> Response:
    now = {"now_ms": int(values["now"].timestamp() * 1000)} if "now" in values else {}
    return frame(call, template=template, title=title, values=values | now, rail=rail, **more)


@get("/live", Role.VIEWER, kind="api")
async def _live(call: Call) -> Response:
    return live.stream(call, _by_path, RAIL)


@get("/complete", Role.VIEWER)
def _complete(call: Call) -> Response:
    return HTMLResponse(environment().get_template("completions.html").render(completions=complete(_ask(call))))


@get("/count", Role.VIEWER)
def _count(call: Call) -> Response:
    words = language(language_of(call))
    return HTMLResponse(matched_text(_ask(call), lambda n: words.plural("1 task", "{n} tasks", n)))


@get("/export", Role.VIEWER)
def _export(call: Call) -> Response:
    ask, form = _ask(call), call.request.query_params.get("format", "csv")
    if form not in ("csv", "json"):
        raise Refused(Problem(422, "bad input", "the format is csv or json"))
    # A mistake in the query is shown before the download begins.
    ask.views.find(ask.get("q"), limit=1, within=timedelta(0))
    kind = "text/csv; charset=utf-8" if form == "csv" else "application/x-ndjson"
    name = f"tasks.{'csv' if form == 'csv' else 'jsonl'}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(exported(ask, form), media_type=kind, headers=headers)


@get("/log", Role.VIEWER)
def _log(call: Call) -> Response:
    lines = task_log.read(call.queue, call.request.query_params.get("id", ""))
    first = next(lines, None)  # an unknown task is reported before the download begins

    def text() -> Iterator[bytes]:
        for line in () if first is None else chain([first], lines):
            if isinstance(line, task_log.LogGap):
                yield f"({line.lines:,} lines were dropped)\n".encode()
            else:
                yield f"{line.at:%Y-%m-%d %H:%M:%S}Z {line.phase}#{line.attempt} {line.level} {line.text}\n".encode()

    headers = {"Content-Disposition": 'attachment; filename="task.log"'}
    return StreamingResponse(text(), media_type="text/plain; charset=utf-8", headers=headers)


@get("/help", Role.VIEWER)
def _help(call: Call) -> Response:
    return sheet(call, "help.html", key_list=KEY_LIST, query_keys=KEYS)


@get("/language", Role.PUBLIC)
def _language(call: Call) -> Response:
    code, back = call.request.query_params.get("lang", ""), call.request.query_params.get("back", "")
    response = call.redirect(back if back.split("?")[0] in (*_by_path, "new") else "")
    if code in LANGUAGES:
        response.set_cookie(LANGUAGE_COOKIE, code, max_age=31_536_000, samesite="lax", httponly=True)
    return response


@get("/new", Role.OPERATOR)
def _new(call: Call) -> Response:
    return _new_page(call, {}, None)


@post("/new", Role.OPERATOR)
def _add(call: Call) -> Response:
    response, problem = adding.add(call)
    return response or _new_page(call, call.form, problem)


def _new_page(call: Call, given: dict[str, str], problem: Problem | None) -> Response:
    values = adding.read_form(call, given, problem)
    status = 200 if problem is None else problem.status
    return _framed(call, "new.html", "New task", values, RAIL.read(_ask(call)), active="new", status=status)


def login_page(call: Call, wanted: str, problem: Problem | None) -> Response:
    """Render the log-in form. wanted: the path to go to afterwards."""
    access = call.site.authenticator.access
    status = 200 if problem is None else problem.status
    return lone(
        call, "login.html", status, title="Log in", wanted=wanted, problem=problem,
        with_users=bool(access.users), with_tokens=bool(access.tokens),
    )  # fmt: skip


def error_page(call: Call, problem: Problem) -> Response:
    """Render a problem as a page; a page whose store does not answer shows itself again when the store does."""
    response = _error(call, problem)
    if problem.retry_after is not None:
        response.headers["Retry-After"] = str(problem.retry_after)
    if problem.allow:
        response.headers["Allow"] = problem.allow
    return response


def _error(call: Call, problem: Problem) -> Response:
    if call.identity.role is Role.PUBLIC or call.base != "./":
        return lone(call, "lone_problem.html", problem.status, title=problem.title, problem=problem)
    if call.request.headers.get("hx-request"):
        text = fragment("problem_sheet.html", {"problem": problem}, variant_of(call), "")
        return HTMLResponse(text, 200)
    page = _by_path.get(call.endpoint.path.lstrip("/"))
    unavailable = problem.status == 503
    view = None
    if unavailable and page is not None:
        query = call.request.url.query
        view = f"{page.path}?{query}" if query else page.path
    try:
        rail = {} if unavailable else RAIL.read(_ask(call))
    except OnerowError:
        rail = {}
    return _framed(
        call, "problem.html", problem.title, {"problem": problem}, rail, status=problem.status, view=view,
        active=page.path if page else None, failed=unavailable,
    )  # fmt: skip
