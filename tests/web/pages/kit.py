"""A queue with tasks in every state, and dashboards served in this process or on a loopback port."""

import asyncio
import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from onerow import Context, Pipeline, Queue, Retry
from onerow.web import Access, Dashboard, dashboard
from tests.engine.kit import until, work

PAGES = (
    "", "?over=15m", "board", "board?pipeline=mails", "tasks", "tasks?q=status:failed", "tasks?q=nothing+like+this",
    "tasks?col=task&col=user&col=waits+for&col=ended", "waiting", "failures", "phases", "workers", "schedules",
    "operations", "system", "new", "new?pipeline=mails", "help",
)  # fmt: skip
TABS = ("attempts", "log", "data", "steps", "history", "related")
HTML = {"accept": "text/html"}
BAD = "<img src=x onerror=alert(1)>\"'</script>"


def clips() -> Pipeline:
    """A pipeline with code, a wait, children, a schedule, a rate and limits."""
    pipeline = Pipeline("clips", title="{topic}")

    @pipeline.phase(concurrency=2, rate="6000/min", retry=Retry(0))
    def script(job: Any, ctx: Context) -> Any:
        ctx.log(f"writing about {job['topic']}")
        ctx.step("outline", lambda: {"parts": ["why", "how"], "big": 12345678901234567})
        if job.get("fail"):
            try:
                json.loads("too many requests")  # its frames are those of a library
            except ValueError as error:
                raise ConnectionError(f"{job['topic']}: 429 too many requests") from error
        return {"text": f"all about {job['topic']}", "url": "https://example.test/clip"}

    pipeline.wait_for("images", signal="images.ready", timeout="10m")

    @pipeline.phase
    def video(job: Any) -> str:
        return "out/clip.mp4"

    pipeline.cron("0 9 * * 1-5", name="weekdays", tz="Asia/Seoul", payload={"topic": "the week"})
    return pipeline


def mails() -> Pipeline:
    pipeline = Pipeline("mails", title="{to}")

    @pipeline.phase
    def send(job: Any) -> None: ...

    return pipeline


def fill(queue: Queue, text: str = "조류의 비밀") -> dict[str, str]:
    """Add tasks and run them; return one task id for each state. text: stands in every field that people write."""
    one, two = clips(), mails()
    queue.publish(one, two)
    ids = {
        "failed": queue.add(one, {"topic": text, "fail": True, "nested": {"password": "hunter2", text: [1, None]}}),
        "completed": queue.add(one, {"topic": text}, limit_key=text[:80], user_id=text[:80]),
        "parked": queue.add(one, {"topic": text}, metadata={text: text}),
    }
    found = {name: task.task_id for name, task in ids.items()}
    work(queue, one)
    queue.signal(found["completed"], "images.ready", {"files": [text]}, by=text[:80])
    work(queue, one)
    found["cancelled"] = queue.add(one, {"topic": text}, unique=text[:80]).task_id
    queue.cancel(found["cancelled"], note=text)
    found["waiting"] = queue.add(two, {"to": text}, priority=-5, user_id="u1").task_id
    found["processing"] = queue.add(two, {"to": text}).task_id
    (lease,) = queue.claim("mails", ids=[found["processing"]], worker=text[:60])
    lease.remember("sent", {text: text})
    queue.pause("clips", "video", by=text[:60], reason=text)
    queue.set_limit("clips", "script", concurrency=3)
    queue.select("status:failed").annotate({"seen": True})
    return found


class Browser:
    """Calls a dashboard in this process, as a browser without scripts does."""

    def __init__(self, app: Any, root_path: str = "", headers: dict[str, str] | None = None) -> None:
        self._app, self._root = app, root_path
        self._headers = HTML | (headers or {})
        self.cookies = httpx.Cookies()

    def __call__(self, method: str, path: str, **options: Any) -> httpx.Response:
        return asyncio.run(self._call(method, path, **options))

    async def _call(self, method: str, path: str, **options: Any) -> httpx.Response:
        transport = httpx.ASGITransport(self._app, client=("127.0.0.1", 5000), root_path=self._root)
        sent = {name: value.encode() for name, value in (self._headers | options.pop("headers", {})).items()}
        async with httpx.AsyncClient(
            transport=transport, base_url="http://localhost", cookies=self.cookies, timeout=60
        ) as client:
            answer = await client.request(method, f"{self._root}/{path}", headers=sent, **options)
            self.cookies = client.cookies
            return answer

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self("GET", path, **options)

    def post(self, path: str, data: dict[str, Any]) -> httpx.Response:
        """Send a form with the CSRF token of a page."""
        page = self.get("new").text
        token = re.search(r'name="csrf" value="([0-9a-f]+)"', page) or re.search(
            r'name="csrf" content="([0-9a-f]+)"', page
        )
        assert token is not None, page[:500]
        return self("POST", path, data={"csrf": token[1]} | data)


@contextmanager
def served(queue: Queue, prefix: str = "", access: Access | None = None) -> Iterator[tuple[str, Dashboard]]:
    """Serve a dashboard, mounted in another app if a prefix is given, during the block; yield its address and itself."""
    app = dashboard(queue, access=access)
    listening = socket.socket(proto=socket.IPPROTO_TCP)  # without it asyncio does not set TCP_NODELAY
    listening.bind(("127.0.0.1", 0))
    host = Starlette(routes=[Mount(prefix, app)]) if prefix else app
    config = uvicorn.Config(host, lifespan="on", log_config=None, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        until(lambda: server.started, "the server")
        yield f"http://127.0.0.1:{listening.getsockname()[1]}{prefix}/", app
    finally:
        server.should_exit = True
        thread.join(900)
        listening.close()
        app.close()
        assert not thread.is_alive()
