"""Templates and what all of them have: language, theme, rail, caller."""

import hashlib
from collections.abc import Mapping
from functools import cache, partial
from importlib.metadata import version
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from onerow.web.pages import language as languages
from onerow.web.pages.formatting import FILTERS
from onerow.web.pages.language import LANGUAGES, language
from onerow.web.pages.page import digest
from onerow.web.pages.sentences import sentence
from onerow.web.pages.tasks import lane_query
from onerow.web.problems import Problem
from onerow.web.routing import Call
from onerow.web.security.roles import Role

THEME = "onerow_theme"
NAV = [
    ("", "Overview"), ("board", "Board"), ("tasks", "Tasks"), ("failures", "Failures"), ("waiting", "Waiting room"),
    ("phases", "Phases"), ("workers", "Workers"), ("schedules", "Schedules"), ("operations", "Operations"),
    ("system", "System"),
]  # fmt: skip
"""Path and title of the pages in the rail."""
_SHORT = 9


def short_id(task_id: str) -> str:
    """Return the end of a long generated id, which differs most between tasks; a short id whole."""
    return task_id if len(task_id) <= 14 else f"…{task_id[-_SHORT:]}"


@cache
def environment() -> Environment:
    """Return the templates; every value is escaped, and an unknown name is an error."""
    found = Environment(
        loader=PackageLoader("onerow.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= FILTERS | {"short_id": short_id, "lane_query": lane_query, "urlencode": _urlencode}
    return found


def _urlencode(values: Mapping[str, object]) -> str:
    return urlencode({key: str(value) for key, value in values.items()})


@cache
def assets() -> str:
    """Return a hash of the scripts and styles, so that a browser reloads them after an upgrade."""
    found = hashlib.blake2s(digest_size=5)
    for name in ("onerow.css", "page.js", "keys.js", "live.js", "charts.js"):
        found.update((files("onerow.web") / "static" / name).read_bytes())
    return found.hexdigest()


@cache
def onerow_version() -> str:
    return version("onerow")


Variant = tuple[str, Role]
"""What changes the look of a page beside its values: the language and the role."""


def variant_of(call: Call) -> Variant:
    return language_of(call), call.identity.role


def language_of(call: Call) -> str:
    request = call.request
    return languages.choose(
        request.query_params.get("lang"),
        request.cookies.get(languages.COOKIE),
        request.headers.get("accept-language", ""),
    )


def fragment(template: str, values: Mapping[str, Any], variant: Variant, store_url: str) -> str:
    """Render the content of a page, without the frame around it."""
    return environment().get_template(template).render(_common(variant, store_url) | dict(values))


def away(problem: Problem, variant: Variant) -> str:
    """Render the notice that the store does not answer."""
    return fragment("away.html", {"problem": problem}, variant, "")


def _common(variant: Variant, store_url: str) -> dict[str, Any]:
    code, role = variant
    translate = language(code)
    return {
        "_": translate, "say": partial(sentence, code), "_n": translate.plural, "lang": code, "operator": role >= Role.OPERATOR, "admin": role >= Role.ADMIN,
        "store_url": store_url, "version": onerow_version(), "nav": NAV,
    }  # fmt: skip


def frame(
    call: Call,
    *,
    template: str,
    title: str,
    values: Mapping[str, Any],
    rail: Mapping[str, Any],
    active: str | None = None,
    view: str | None = None,
    status: int = 200,
    charts: bool = False,
    failed: bool = False,
) -> Response:
    """Render a whole page."""
    theme = call.request.cookies.get(THEME, "")
    common = _common(variant_of(call), call.queue.url) | {
        "base": call.base, "csrf": call.csrf, "identity": call.identity, "languages": LANGUAGES, "assets": assets(),
        "theme": theme if theme in ("light", "dark") else "", "title": title, "subtitle": "", "query": "",
        "charts": charts, "failed": failed, "view": view, "active": active, "here": _here(call),
        "may_log_out": bool(call.site.authenticator.access), "now_ms": "", "digest": "", "rail": None,
    }  # fmt: skip
    common |= dict(rail) | dict(values)
    environment_ = environment()
    content = environment_.get_template(template).render(common)
    text = environment_.get_template("layout.html").render(
        common | {"content": Markup(content), "digest": digest(content)}
    )
    return HTMLResponse(text, status)


def sheet(call: Call, template: str, status: int = 200, **values: Any) -> Response:
    """Render the content of a dialog; as a page of its own if the browser did not ask for a part of a page."""
    common = (
        _common(variant_of(call), call.queue.url) | {"base": call.base, "csrf": call.csrf, "title": "onerow"} | values
    )
    if call.request.headers.get("hx-request"):
        return HTMLResponse(environment().get_template(template).render(common), status)
    return lone(call, template, status, **values)


def lone(call: Call, template: str, status: int = 200, **values: Any) -> Response:
    """Render a page without the rail: log-in, errors before a caller is known, dialogs without scripts."""
    theme = call.request.cookies.get(THEME, "")
    common = _common((language_of(call), call.identity.role), "") | {
        "base": call.base, "csrf": call.csrf, "assets": assets(), "fragment": template, "title": "onerow",
        "theme": theme if theme in ("light", "dark") else "",
    }  # fmt: skip
    return HTMLResponse(environment().get_template("bare.html").render(common | values), status)


def _here(call: Call) -> str:
    query = call.request.url.query
    return call.inner_path.lstrip("/") + (f"?{query}" if query else "")
