"""A worker inside an ASGI application, and the FastAPI example."""

import asyncio
import errno
import importlib.util
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from onerow import Context, Pipeline, Queue, Status
from onerow.asgi import lifespan
from onerow.engine.events.events import RoleFailed
from onerow.engine.processes import ProcessHost
from tests.engine.conftest import ended, until

EXAMPLE = Path(__file__).parents[2] / "examples" / "letters.py"


@pytest.fixture
def letters(tmp_path: Path) -> Iterator[ModuleType]:
    """The example, imported from a separate folder."""
    (tmp_path / "onerow.toml").touch()
    copy = tmp_path / "letters.py"
    copy.write_text(EXAMPLE.read_text())
    spec = importlib.util.spec_from_file_location("letters", copy)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    module.queue.close()


def test_the_fastapi_example_works_and_leaves_nothing_running(letters: ModuleType, tmp_path: Path) -> None:
    async def visit() -> None:
        transport = httpx.ASGITransport(letters.app)
        async with (
            letters.app.router.lifespan_context(letters.app),
            httpx.AsyncClient(transport=transport, base_url="http://letters") as client,
        ):
            answer = await client.post("/letters", json={"to": "Ann", "words": 3})
            assert answer.status_code == 202
            task_id = answer.json()["task_id"]
            await asyncio.to_thread(ended, letters.queue, task_id)
            found = (await client.get(f"/letters/{task_id}")).json()
            assert (found["status"], found["result"]) == ("completed", {"characters": 25})
            assert (await client.get("/letters/nowhere")).status_code == 404
            assert (await client.post("/letters", json={"words": 3})).status_code == 422

    before = threading.active_count()
    asyncio.run(visit())
    assert (tmp_path / "letters.db").exists()
    until(lambda: threading.active_count() <= before)


def test_the_app_drains_at_shutdown_inside_its_own_lifespan(sqlite_url: str) -> None:
    order: list[str] = []
    queue = Queue(sqlite_url)
    slow = Pipeline("slow")
    begun = threading.Event()

    @slow.phase
    def work(job: Any) -> None:
        begun.set()
        time.sleep(0.3)
        order.append("worked")

    @asynccontextmanager
    async def own(app: Any) -> AsyncIterator[None]:
        order.append("up")
        yield
        order.append("down")

    async def serve() -> str:
        async with lifespan(queue, slow, within=own)(None):
            task = await queue.add_async(slow)
            await asyncio.to_thread(begun.wait, 30)
            return task.task_id

    task_id = asyncio.run(serve())
    assert order == ["up", "worked", "down"]
    assert queue.get(task_id).status is Status.COMPLETED
    queue.close()


def test_an_app_whose_worker_cannot_start_does_not_start(tmp_path: Path) -> None:
    queue = Queue(f"sqlite:///{tmp_path}/no/such/folder/app.db")
    slow = Pipeline("slow")
    slow.phase(name="work")(lambda job: None)

    async def serve() -> None:
        async with lifespan(queue, slow)(None):
            raise AssertionError("came up")

    with pytest.raises(Exception, match=r"app\.db"):
        asyncio.run(serve())


def test_a_worker_that_cannot_be_replaced_at_once_is_replaced_later(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue(sqlite_url)
    films = Pipeline("films")
    full = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    starts: list[ProcessHost] = []
    refused: list[RoleFailed] = []
    queue.on(RoleFailed, refused.append)

    @films.phase
    def cut(film: str, ctx: Context) -> str:
        if ctx.attempt == 1:
            raise full
        return film

    def start() -> ProcessHost:
        starts.append(ProcessHost())
        if len(starts) == 2:
            raise full
        return starts[-1]

    async def serve() -> None:
        async with lifespan(queue, films)(None):
            task = await queue.add_async(films, "x")
            assert (await asyncio.to_thread(ended, queue, task.task_id)).result == "x"

    monkeypatch.setattr("onerow.engine.worker.worker.ProcessHost", start)
    asyncio.run(serve())
    assert len(starts) == 3
    assert [each.role for each in refused] == ["Worker"]
    starts[1].close()
    queue.close()


def test_a_handler_that_hangs_does_not_stop_the_app(sqlite_url: str) -> None:
    queue = Queue(sqlite_url)
    slow = Pipeline("slow")
    release = threading.Event()

    @slow.phase(timeout="200ms")
    def hang(job: str) -> str:
        if job == "bad":
            while not release.is_set():
                try:
                    release.wait(0.05)
                except BaseException:
                    continue  # ignores every request to stop
        return job

    async def serve() -> None:
        async with lifespan(queue, slow, grace=0.5)(None):
            bad = await queue.add_async(slow, "bad")
            found = await asyncio.to_thread(ended, queue, bad.task_id)
            assert (found.status, found.error_class) == (Status.FAILED, "timeout")
            good = await queue.add_async(slow, "good")
            assert (await asyncio.to_thread(ended, queue, good.task_id)).result == "good"

    try:
        asyncio.run(serve())
    finally:
        release.set()
    queue.close()
