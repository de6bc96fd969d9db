"""Benchmark of the dashboard: time to the first byte of every page with `scale` rows in the store."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

import httpx
import uvicorn

from bench.setting import Figure, Setting
from bench.views import BATCH, PHASES, rows
from onerow.core.plan import PhasePlan, Plan
from onerow.engine.control import definitions
from onerow.engine.queue.queue import Queue
from onerow.web import dashboard

_RUNS = 50
QUERIES = (
    "", "status:failed", "status:waiting phase:video", "status:completed", "user:u7", "error:network",
    'title:"ideo 12345 "', "payload.n:17", "nothing like this",
)  # fmt: skip


def web(setting: Setting) -> Iterator[Figure]:
    """First byte of every page: median and 99th percentile of 50 requests, after one that fills caches."""
    queue = setting.queue()
    _fill(queue, setting.scale)
    task = queue.find("status:waiting phase:video", limit=1).tasks[0].task_id
    failed = queue.find("status:failed", limit=1).tasks[0].task_id
    pages = {
        "overview": "", "overview, a day": "?over=24h", "board": "board", "failures": "failures", "phases": "phases",
        "workers": "workers", "schedules": "schedules", "operations": "operations", "system": "system",
        "waiting room": "waiting", "new task": "new", "task": f"task?id={task}", "failed task": f"task?id={failed}",
        "completion": "complete?q=user:", "retry dialog": "act?name=retry&q=status:failed",
    } | {f"tasks {query}".strip(): f"tasks?q={quote(query)}" for query in QUERIES}  # fmt: skip
    with _served(queue) as base, httpx.Client(timeout=120, headers={"accept": "text/html"}) as client:
        for name, path in pages.items():
            taken = sorted([_first_byte(client, base + path) for _ in range(_RUNS + 1)][1:])
            yield Figure(f"page {name}, p50", setting.store, taken[_RUNS // 2] * 1000, "ms")
            yield Figure(f"page {name}, p99", setting.store, taken[int(_RUNS * 0.99)] * 1000, "ms")
    queue.close()


def _first_byte(client: httpx.Client, address: str) -> float:
    began = time.perf_counter()
    with client.stream("GET", address) as response:
        parts = response.iter_raw()
        next(parts)
        taken = time.perf_counter() - began
        assert response.status_code == 200, address
        for _ in parts:
            pass
    return taken


def _fill(queue: Queue, total: int) -> None:
    store = queue.store
    definitions.publish(store, [Plan(name="videos", phases=tuple(PhasePlan(name=name) for name in PHASES))])
    for start in range(0, total, BATCH):
        store.insert(rows(start, total, store))


@contextmanager
def _served(queue: Queue) -> Iterator[str]:
    app = dashboard(queue)
    listening = socket.socket(proto=socket.IPPROTO_TCP)  # without it asyncio does not set TCP_NODELAY
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, lifespan="on", log_config=None))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join()
        app.close()
        listening.close()
