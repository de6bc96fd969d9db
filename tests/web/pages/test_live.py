"""The event stream: who reads the store, what is sent, and what happens when the store does not answer."""

import asyncio
import json
import os
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from onerow import Queue, StoreUnavailable, UnknownName
from onerow.web import Access, Dashboard, app, dashboard, routing
from onerow.web.pages import live, rendering
from onerow.web.pages.live import live_of
from onerow.web.pages.page import Ask, Page
from onerow.web.pages.rendering import away
from onerow.web.problems import problem_of
from onerow.web.security.roles import Role
from tests.web.kit import Client
from tests.web.pages.kit import HTML, served

PATIENCE = 900.0


async def messages(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    async for line in response.aiter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


async def first(response: httpx.Response, kind: str, **having: str) -> dict[str, Any]:
    """Return the first message of a kind whose fields contain the given texts."""
    async with asyncio.timeout(PATIENCE):
        async for message in messages(response):
            if message["kind"] == kind and all(text in message[field] for field, text in having.items()):
                return message
    raise AssertionError("the stream ended")


async def open_stream(stack: AsyncExitStack, base: str, *views: str, token: str = "") -> httpx.Response:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    client = await stack.enter_async_context(httpx.AsyncClient(timeout=PATIENCE, headers=headers))
    query = "&".join(f"view={quote(view, safe='')}" for view in views)
    response = await stack.enter_async_context(client.stream("GET", f"{base}live?{query}"))
    assert response.status_code == 200
    return response


def test_a_change_in_the_store_is_sent_to_the_pages_that_show_it(queue: Queue, ids: dict[str, str]) -> None:
    async def watch(base: str) -> None:
        async with AsyncExitStack() as stack:
            response = await open_stream(stack, base, "tasks", "failures")
            lines = messages(response)
            async with asyncio.timeout(PATIENCE):
                seen: set[tuple[str, str]] = set()
                async for message in lines:
                    seen.add((message["kind"], message.get("view", "")))
                    if {("view", "tasks"), ("view", "failures"), ("rail", "rail")} <= seen:
                        break
                added = await asyncio.to_thread(queue.add, "mails", {"to": "a new one"})
                async for message in lines:
                    if message.get("view") == "tasks" and added.task_id in message["html"]:
                        break

    with served(queue) as (base, _):
        asyncio.run(watch(base))


def test_an_unchanged_page_is_not_sent_again(queue: Queue, ids: dict[str, str]) -> None:
    async def watch(base: str) -> None:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(httpx.AsyncClient(timeout=PATIENCE))
            page = (await client.get(f"{base}schedules", headers={"accept": "text/html"})).text
            have = page.partition('data-digest="')[2].partition('"')[0]
            response = await stack.enter_async_context(client.stream("GET", f"{base}live?view=schedules&have={have}"))
            beats = 0
            async with asyncio.timeout(PATIENCE):
                async for message in messages(response):
                    assert message["kind"] != "view", message["html"][:300]
                    beats += message["kind"] == "beat"
                    if beats == 2:
                        return

    with served(queue) as (base, _):
        asyncio.run(watch(base))


@pytest.mark.parametrize("clients", [40, pytest.param(200, marks=pytest.mark.slow)])
def test_many_clients_cause_as_many_reads_as_one(
    queue: Queue, ids: dict[str, str], clients: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered: Counter[str] = Counter()

    def fragment(template: str, *given: Any) -> str:
        rendered[template] += 1
        return rendering.fragment(template, *given)

    monkeypatch.setattr(live, "fragment", fragment)

    async def watch(base: str, app: Any) -> None:
        async with AsyncExitStack() as stack:
            streams = await asyncio.gather(*(open_stream(stack, base, "tasks") for _ in range(clients)))
            await asyncio.gather(*(first(stream, "view", view="tasks") for stream in streams))
            readers = live_of(app.site).readers
            assert len(readers) == 2  # the page and the rail
            reads = {key: reader.reads for key, reader in readers.items()}
            numbers = {key: reader.number for key, reader in readers.items()}
            assert all(reads[key] - numbers[key] <= 1 for key in reads)  # each read serves every client
            assert rendered["tasks.html"] <= reads[None, "tasks"]
            assert rendered["rail.html"] <= reads[None, "rail"]

    with served(queue) as (base, app):
        asyncio.run(watch(base, app))


def test_readers_end_with_their_last_client(queue: Queue, ids: dict[str, str]) -> None:
    async def watch(base: str) -> None:
        async with AsyncExitStack() as stack:
            await first(await open_stream(stack, base, "tasks"), "view")

    with served(queue) as (base, app):
        asyncio.run(watch(base))
        from tests.engine.kit import until

        until(lambda: not live_of(app.site).readers, "the end of the readers")


def test_a_store_that_does_not_answer_is_reported_and_heals(queue: Queue, ids: dict[str, str]) -> None:
    path = Path(queue.url.removeprefix("sqlite:///"))

    async def watch(base: str) -> None:
        async with AsyncExitStack() as stack:
            response = await open_stream(stack, base, "tasks")
            lines = messages(response)
            async with asyncio.timeout(PATIENCE):
                async for message in lines:
                    if message["kind"] == "view":
                        break
                await asyncio.to_thread(_break, queue, path)
                async for message in lines:
                    # Not that of the rail: the page could be read before it and after the repair, and would not change.
                    if message["kind"] == "away" and message["view"] == "tasks":
                        assert "does not answer" in message["html"]
                        break
                client = await stack.enter_async_context(httpx.AsyncClient(timeout=PATIENCE))
                page = await client.get(f"{base}tasks", headers={"accept": "text/html"})
                assert page.status_code == 503
                assert 'data-failed="1"' in page.text
                assert 'data-view="tasks"' in page.text  # it shows itself again when the store answers
                await asyncio.to_thread(_mend, queue, path)
                async for message in lines:
                    if message["kind"] == "view":
                        break

    with served(queue) as (base, _):
        asyncio.run(watch(base))


def test_a_store_that_hangs_is_reported_and_the_page_heals(
    queue: Queue, ids: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Page.values
    goes_on = threading.Event()

    def values(page: Page, ask: Ask) -> dict[str, Any]:
        goes_on.wait(PATIENCE)
        return read(page, ask)

    async def watch(base: str) -> None:
        async with AsyncExitStack() as stack:
            response = await open_stream(stack, base, "tasks")
            lines = messages(response)
            async with asyncio.timeout(PATIENCE):
                async for message in lines:
                    if message["kind"] == "away" and message["view"] == "tasks":
                        assert "has not answered" in message["html"]
                        break
                page = await asyncio.to_thread(httpx.get, f"{base}tasks", headers=HTML, timeout=PATIENCE)
                assert page.status_code == 503
                assert 'data-failed="1"' in page.text
                goes_on.set()
                async for message in lines:
                    if message["kind"] == "view":
                        break

    monkeypatch.setattr(Page, "values", values)
    monkeypatch.setattr(live, "_SLOW", 0.1)
    monkeypatch.setattr(app, "LONGEST", 0.1)
    try:
        with served(queue) as (base, _):
            asyncio.run(watch(base))
    finally:
        goes_on.set()


def test_a_page_that_can_not_be_read_is_reported_and_read_again(
    queue: Queue, ids: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    read = Page.values
    broken = True

    def values(page: Page, ask: Ask) -> dict[str, Any]:
        if broken and page.path == "tasks":
            raise ValueError("a mistake of this server")
        return read(page, ask)

    async def watch(base: str) -> None:
        async with AsyncExitStack() as stack:
            response = await open_stream(stack, base, "tasks")
            assert "its log has the traceback" in (await first(response, "away", view="tasks"))["html"]

    async def watch_again(base: str) -> None:
        async with AsyncExitStack() as stack:
            await first(await open_stream(stack, base, "tasks"), "view", view="tasks")

    monkeypatch.setattr(Page, "values", values)
    with served(queue) as (base, _):
        asyncio.run(watch(base))
        broken = False
        asyncio.run(watch_again(base))
    assert "a mistake of this server" in caplog.text


def _break(queue: Queue, path: Path) -> None:
    queue.close()
    for each in path.parent.glob(f"{path.name}*"):
        os.rename(each, each.with_name(f"away-{each.name}"))
    path.mkdir()  # a directory can't be opened as a database
    queue.close()  # a reader may have opened the file before it was moved


def _mend(queue: Queue, path: Path) -> None:
    queue.close()
    path.rmdir()
    for each in path.parent.glob("away-*"):
        os.rename(each, each.with_name(each.name.removeprefix("away-")))


@pytest.mark.parametrize("path", ["/live?view=tasks", "/api/v1/tasks/t1/logs/stream"])
@pytest.mark.parametrize("then", [None, "operator"])
def test_a_stream_ends_when_its_caller_is_not_the_same_any_more(
    queue: Queue, ids: dict[str, str], monkeypatch: pytest.MonkeyPatch, path: str, then: str | None
) -> None:
    monkeypatch.setattr(routing, "CHECK_EVERY", 0.05)
    queue.add("mails", {"to": "x"}, task_id="t1")
    answers = iter(["viewer", "viewer", then, "left"])  # to the request, and then while the stream is open
    app = dashboard(queue, authorize=lambda request: next(answers))
    try:
        assert Client(app).get(path).status_code == 200  # it has ended
        assert next(answers) == "left"
    finally:
        app.close()


def test_streams_and_views_are_bounded(queue: Queue, ids: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_STREAMS", 1)
    monkeypatch.setattr(live, "MOST_READERS", 3)

    async def shown(stack: AsyncExitStack, base: str) -> AsyncIterator[dict[str, Any]]:
        """Open a stream of the tasks and return it when they are shown; it is closed when nothing refers to it."""
        lines = messages(await open_stream(stack, base, "tasks"))
        async with asyncio.timeout(PATIENCE):
            while (await anext(lines))["kind"] != "view":
                continue
        return lines

    async def refused(base: str, query: str) -> httpx.Response:
        async with httpx.AsyncClient(timeout=PATIENCE) as client, client.stream("GET", f"{base}live?{query}") as answer:
            return answer

    async def watch(base: str, app: Dashboard) -> None:
        async with AsyncExitStack() as stack:
            lines = await shown(stack, base)
            busy = await refused(base, "view=tasks")
            assert (busy.status_code, busy.headers["retry-after"]) == (503, "30")
            await lines.aclose()  # type: ignore[attr-defined]
        async with asyncio.timeout(PATIENCE):
            while live_of(app.site).streams:
                await asyncio.sleep(0.05)
        async with AsyncExitStack() as stack:
            lines = await shown(stack, base)
            monkeypatch.setattr(live, "MOST_STREAMS", 9)
            assert (await refused(base, "view=board&view=failures")).status_code == 503
            await lines.aclose()  # type: ignore[attr-defined]

    with served(queue) as (base, app):
        asyncio.run(watch(base, app))


def test_a_deleted_task_is_not_called_a_store_that_does_not_answer() -> None:
    assert "does not answer" not in away(problem_of(UnknownName("no task 'a'")), ("en", Role.VIEWER))
    assert "does not answer" in away(problem_of(StoreUnavailable("closed")), ("en", Role.VIEWER))


def test_a_stream_of_pages_that_the_caller_may_not_see_is_refused(queue: Queue, ids: dict[str, str]) -> None:
    with served(queue) as (base, _):
        assert httpx.get(f"{base}live?view=act").status_code == 404
        assert httpx.get(f"{base}live?view=..%2Fstatic").status_code == 404


def test_callers_for_different_users_share_no_page(queue: Queue, ids: dict[str, str]) -> None:
    mine = {user: queue.add("mails", {"to": "kim"}, user_id=user).task_id for user in ("ann", "ben")}
    tokens = {user: f"token-of-{user}-0123456789abcdef" for user in mine}
    operator = "token-of-operator-0123456789abcdef"
    access = Access().with_token("all", "token-of-all-0123456789abcdef", "viewer")
    access = access.with_token("operator", operator, "operator")
    for user, token in tokens.items():
        access = access.with_token(user, token, "viewer", user)

    async def watch(base: str) -> None:
        async with AsyncExitStack() as stack:
            shown = {}
            for user, token in {"all": "token-of-all-0123456789abcdef", **tokens}.items():
                stream = await open_stream(stack, base, "tasks", token=token)
                shown[user] = (await first(stream, "view", view="tasks"))["html"]
            assert all(mine[user] in shown["all"] for user in mine)
            assert (mine["ann"] in shown["ann"], mine["ben"] in shown["ann"]) == (True, False)
            assert (mine["ann"] in shown["ben"], mine["ben"] in shown["ben"]) == (False, True)
            acting = await open_stream(stack, base, "tasks", token=operator)
            assert "act?name=" in (await first(acting, "view", view="tasks"))["html"]
            assert "act?name=" not in shown["all"]  # the same page, read once, but a viewer may not act
            client = await stack.enter_async_context(httpx.AsyncClient(timeout=PATIENCE))
            for view in ("workers", "phases", "schedules", "operations", "system"):
                headers = {"authorization": f"Bearer {tokens['ann']}"}
                async with client.stream("GET", f"{base}live?view=tasks&view={view}", headers=headers) as answer:
                    assert answer.status_code == 403, view

    with served(queue, access=access) as (base, _):
        asyncio.run(watch(base))
