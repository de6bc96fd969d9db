"""Styles, scripts and icons: files of the package, by an exact list, so that no path comes from outside."""

import gzip
from functools import cache
from importlib.resources import files

from starlette.responses import Response

from onerow.web.problems import Problem, Refused
from onerow.web.routing import Call, Endpoint, get
from onerow.web.security.roles import Role

TYPES = {
    "onerow.css": "text/css", "page.js": "text/javascript", "keys.js": "text/javascript", "live.js": "text/javascript",
    "charts.js": "text/javascript", "icon.svg": "image/svg+xml", "vendor/htmx.min.js": "text/javascript",
    "vendor/uplot.min.js": "text/javascript", "vendor/uplot.min.css": "text/css",
}  # fmt: skip


def routes() -> list[Endpoint]:
    return [_static]


@get("/static/{name:path}", Role.PUBLIC)
def _static(call: Call) -> Response:
    name = call.path["name"]
    if name not in TYPES:
        raise Refused(Problem(404, "not found", "there is no such file"))
    raw, packed = _contents(name)
    zipped = "gzip" in call.request.headers.get("accept-encoding", "")
    headers = {
        "Cache-Control": "public, max-age=31536000, immutable" if call.request.url.query else "public, max-age=3600"
    }
    if zipped:
        headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return Response(packed if zipped else raw, headers=headers, media_type=TYPES[name])


@cache
def _contents(name: str) -> tuple[bytes, bytes]:
    raw = (files("onerow.web") / "static").joinpath(*name.split("/")).read_bytes()
    return raw, gzip.compress(raw, mtime=0)
