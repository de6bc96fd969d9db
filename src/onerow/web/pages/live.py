"""Live pages: one reader for each page that someone looks at, however many browsers show it, and the event stream."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from time import monotonic
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from starlette.responses import Response, StreamingResponse

from onerow.core.errors import OnerowError
from onerow.engine.queue.queue import Queue
from onerow.web.pages.page import Ask, Page, digest, split_view
from onerow.web.pages.rendering import away, fragment, variant_of
from onerow.web.problems import INTERNAL_ERROR, Problem, Refused, not_answered, problem_of
from onerow.web.routing import Call
from onerow.web.security.roles import Role
from onerow.web.site import Site

MOST_VIEWS = 16
MOST_STREAMS = 500
MOST_READERS = 500
SHORTEST = 0.25
"""Seconds between two updates of one view, at least."""
_BEAT = 5.0
_STREAM_FOR = 600.0  # then the browser connects again
_REST_AFTER = 3.0
_LONGEST = 30.0  # seconds between two readings of a page, at most
_SLOW = 10.0
"""Seconds after which a reading that has not returned is shown as a store that does not answer."""

Variant = tuple[str, Role]
_encode = msgspec.json.Encoder().encode
_log = logging.getLogger("onerow.web")


class Reader:
    """Reads one page for all streams that show it; it ends when none has for some seconds."""

    def __init__(self, site: Site, page: Page, ask: Ask) -> None:
        self._site, self._page, self._ask = site, page, ask
        self.number = 0  # of readings so far
        self.problem: Problem | None = None
        self._values: dict[str, Any] = {}
        self._rendered: dict[Variant, asyncio.Task[tuple[str, str]]] = {}
        self.listeners: set[asyncio.Event] = set()
        self.reads = 0

    async def run(self) -> None:
        """Read again and again while there are listeners."""
        idle_since: float | None = None
        while True:
            if self.listeners:
                idle_since = None
            elif idle_since is None:
                idle_since = monotonic()
            elif monotonic() - idle_since > _REST_AFTER:
                return
            began = monotonic()
            if self.listeners:
                await self._read()
            # A page that is slow to read is read less often, so that looking at it does not load the store.
            rest = 0.0 if self.problem is not None else min(4 * (monotonic() - began), _LONGEST)
            await asyncio.sleep(max(self._page.every, SHORTEST, rest) if self.listeners else 0.2)

    async def _read(self) -> None:
        self.reads += 1
        reading = asyncio.get_running_loop().create_task(self._site.pool.run(self._page.values, self._ask))
        if not (await asyncio.wait([reading], timeout=_SLOW))[0]:
            self._show(not_answered(_SLOW))
        try:
            values = await reading
        except OnerowError as error:
            self._show(problem_of(error))
        except Refused as refused:
            self._show(refused.problem)
        except Exception:
            _log.exception("reading %s failed", self._page.template)
            self._show(INTERNAL_ERROR)  # without it the stream would go on and show an old page as current
        else:
            self._values = values
            self._show(None)

    def _show(self, problem: Problem | None) -> None:
        self.problem = problem
        self._rendered.clear()
        self.number += 1
        for listener in self.listeners:
            listener.set()

    async def shown(self, variant: Variant) -> tuple[str, str]:
        """Return the page's content and its digest, rendered once for each language and role."""
        if variant not in self._rendered:
            self._rendered[variant] = asyncio.get_running_loop().create_task(self._render(variant))
        return await asyncio.shield(self._rendered[variant])  # a stream that ends does not end it for the others

    async def _render(self, variant: Variant) -> tuple[str, str]:
        html = await self._site.pool.run(fragment, self._page.template, self._values, variant, self._site.queue.url)
        return html, digest(html)


class Live:
    """The readers of one dashboard, by user and view."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._readers: dict[tuple[str | None, str], tuple[Reader, asyncio.Task[None]]] = {}
        self.streams = 0  # that are open
        self.ending = False

    @property
    def readers(self) -> dict[tuple[str | None, str], Reader]:
        """The readers that run now."""
        return {key: reader for key, (reader, task) in self._readers.items() if not task.done()}

    def end(self) -> None:
        """End all streams, because the server stops; called in the event loop."""
        self.ending = True
        for reader, task in self._readers.values():
            task.cancel()
            for listener in reader.listeners:
                listener.set()

    def reader(self, queue: Queue, page: Page, view: str) -> Reader:
        """Return the reader of a view, started if none runs."""
        key = (queue.user_id, view)
        found = self._readers.get(key)
        if found is None or found[1].done():
            self._readers = {name: each for name, each in self._readers.items() if not each[1].done()}
            if len(self._readers) >= MOST_READERS:
                raise _too_busy("too many different pages are shown")
            _, pairs = split_view(view)
            reader = Reader(self._site, page, Ask(queue, self._site.views(queue), pairs, self._site.scale))
            task = asyncio.get_running_loop().create_task(reader.run())
            self._readers[key] = found = (reader, task)
        return found[0]


_of_site: WeakKeyDictionary[Site, Live] = WeakKeyDictionary()


def live_of(site: Site) -> Live:
    return _of_site.setdefault(site, Live(site))


def stream(call: Call, pages: dict[str, Page], rail: Page) -> Response:
    """Answer with events: the content of each asked view whenever it changes."""
    asked = call.request.query_params.getlist("view")[:MOST_VIEWS]
    have = call.request.query_params.get("have", "")
    live, variant = live_of(call.site), variant_of(call)
    if live.streams >= MOST_STREAMS:
        raise _too_busy("too many streams are open")
    shown = [_Shown("rail", "rail", live.reader(call.queue, rail, "rail"))]
    for view in asked:
        path, _ = split_view(view)
        page = pages.get(path)
        if page is None or not page.live:
            raise Refused(Problem(404, "not found", f"there is no live page {path[:100]!r}"))
        if call.identity.role < page.role or (page.all_users and call.identity.user_id is not None):
            raise Refused(Problem(403, "not allowed", f"{call.identity.name} may not see {path[:100]!r}"))
        shown.append(_Shown("view", view, live.reader(call.queue, page, view), sent=have if len(asked) == 1 else ""))
    return StreamingResponse(
        _events(call, live, shown, variant), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
    )


def _too_busy(detail: str) -> Refused:
    return Refused(Problem(503, "too busy", detail, retry_after=30))


class _Shown(msgspec.Struct):
    """One view of a stream: what was read and sent last."""

    kind: str  # view or rail
    view: str
    reader: Reader
    seen: int = 0
    sent: str = ""


async def _events(call: Call, live: Live, shown: list[_Shown], variant: Variant) -> AsyncIterator[bytes]:
    changed = asyncio.Event()
    until = monotonic() + _STREAM_FOR
    live.streams += 1
    for each in shown:
        each.reader.listeners.add(changed)
    try:
        yield b"retry: 2000\n\n" + _event({"kind": "beat"})
        sent_at = monotonic()
        while monotonic() < until and not live.ending and await call.still_allowed():
            for each in shown:
                if each.seen == each.reader.number:
                    continue
                each.seen = each.reader.number
                message = await _message(each, variant)
                if each.sent != message["digest"]:
                    each.sent = message["digest"]
                    yield _event(message)
                    sent_at = monotonic()
            if monotonic() - sent_at > _BEAT:
                sent_at = monotonic()
                yield _event({"kind": "beat"})  # the page knows by it that the stream is alive
            changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), _BEAT)
    finally:
        live.streams -= 1
        for each in shown:
            each.reader.listeners.discard(changed)


async def _message(each: _Shown, variant: Variant) -> dict[str, str]:
    if each.reader.problem is not None:
        html = away(each.reader.problem, variant)
        state = "away" if each.reader.problem.status == 503 else "stale"
        return {"kind": "away", "view": each.view, "html": html, "digest": f"away {digest(html)}", "state": state}
    html, mark = await each.reader.shown(variant)
    return {"kind": each.kind, "view": each.view, "html": html, "digest": mark}


def _event(message: dict[str, str]) -> bytes:
    return b"data: " + _encode(message) + b"\n\n"
