"""A dashboard in this process, and clients that call it as browsers and programs do."""

import asyncio
import re
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import httpx

from onerow import Pipeline
from onerow.web import Access, Dashboard
from onerow.web.security.credentials import hash_password

T = TypeVar("T")
PASSWORD = "correct horse"
_HASH = hash_password(PASSWORD, cost=1024)  # cheap: the cost is tested by itself
TOKENS = {role: f"{role}-token-0123456789" for role in ("viewer", "operator", "admin")}
TENANT_TOKEN = "tenant-token-0123456789"


def access() -> Access:
    found = Access()
    for role, token in TOKENS.items():
        found = found.with_token(f"{role}-bot", token, role)
    found = found.with_token("tenant-bot", TENANT_TOKEN, "admin", "tenant-1")
    return found.with_user("kim", _HASH, "operator").with_user("김", _HASH, "viewer")


def clips() -> Pipeline:
    """A pipeline with a phase of code, a wait for a signal, and another phase of code."""
    pipeline = Pipeline("clips", title="{topic}")

    @pipeline.phase
    def script(payload: Any) -> Any:
        return {"text": payload}

    pipeline.wait_for("review", signal="reviewed")

    @pipeline.phase
    def video(payload: Any) -> str:
        return "done"

    return pipeline


class Client:
    """Calls a dashboard; each call is one request with no state but cookies."""

    def __init__(
        self, app: Any, *, token: str | None = None, host: str = "localhost", address: str = "127.0.0.1",
        root_path: str = "",
    ) -> None:  # fmt: skip
        self._app, self._host, self._address, self._root = app, host, address, root_path
        self._headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self.cookies = httpx.Cookies()

    def __call__(self, method: str, path: str, **options: Any) -> httpx.Response:
        return run(self.call(method, path, **options))

    async def call(
        self, method: str, path: str, *, headers: dict[str, str] | None = None, **options: Any
    ) -> httpx.Response:
        transport = httpx.ASGITransport(
            self._app, client=(self._address, 5000), root_path=self._root, raise_app_exceptions=True
        )
        async with httpx.AsyncClient(
            transport=transport, base_url=f"http://{self._host}", cookies=self.cookies, timeout=60
        ) as client:
            given = self._headers | (headers or {})
            sent = [(name.encode(), value.encode("latin-1")) for name, value in given.items()]
            answer = await client.request(method, path, headers=sent, **options)
            self.cookies = client.cookies
            return answer

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self("GET", path, **options)

    def post(self, path: str, json: Any = None, **options: Any) -> httpx.Response:
        if "data" in options or "content" in options:
            return self("POST", path, **options)
        return self("POST", path, json={} if json is None else json, **options)


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def csrf_of(page: str) -> str:
    """Return the CSRF token of a form in a page."""
    found = re.search(r'name="csrf" value="([0-9a-f]+)"', page)
    assert found is not None
    return found[1]


def log_in(client: Client, name: str = "kim", password: str = PASSWORD, **fields: str) -> httpx.Response:
    token = csrf_of(client.get("/login", headers={"accept": "text/html"}).text)
    return client.post("/login", data={"name": name, "password": password, "csrf": token, **fields})


def api(app: Dashboard, role: str = "admin") -> Client:
    return Client(app, token=TOKENS[role])


def until(holds: Callable[[], object], seconds: float = 900) -> None:
    """Wait until a condition holds; fail after many seconds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "did not happen"
        time.sleep(0.05)
