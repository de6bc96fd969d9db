"""Benchmark of the terminal monitor: reads per page, key latency while tasks flow, and CPU when idle.

For each store: python -m bench --only monitor --runs 1 --scale 1000000 --store URL (without --store: a new SQLite file).
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing
from statistics import median, quantiles

from textual import events

from bench.setting import Figure, Setting, start
from bench.views import BATCH, PHASES, rows
from bench.work import one_phase
from onerow.core.plan import PhasePlan, Plan
from onerow.engine.control import definitions
from onerow.tui.app import Monitor
from onerow.tui.grid import Grid
from onerow.tui.page import Page
from onerow.wiring import Queue

_READS = 10
_KEYS = 300
_IDLE_FOR = 10.0
_DRAINED = 5_000
_FLOWING = 120_000
_PAGES = ("board", "tasks", "failures", "workers", "schedules", "limits", "pulse", "log")


def monitor(setting: Setting) -> Iterator[Figure]:
    """Slowest read of each page with `scale` rows, time from key to drawn cursor while a worker runs, idle CPU."""
    with closing(setting.queue()) as queue:
        _fill(queue, setting.scale)
        drained = setting.worker(one_phase(setting, _DRAINED).name, count=_DRAINED)["rate"]
        pipeline = one_phase(setting, _FLOWING)
        half = max(1, int(drained / 2))
        queue.set_limit(pipeline.name, pipeline.plan.first.name, rate=f"{half}/s")
        worker = start(setting.url, pipeline.name, count=_FLOWING * 10)
        try:
            found = asyncio.run(_measure(queue))
        finally:
            worker.kill()
            worker.communicate()
        found |= {"idle": asyncio.run(_idle(queue))}
    yield Figure("monitor: first read", setting.store, found["first"], "ms, of the board")
    for page in _PAGES:
        yield Figure(f"monitor: {page}", setting.store, found[page], "ms, slowest read")
    yield Figure("monitor: key p50", setting.store, found["p50"], "ms", None, f"{half} tasks/s")
    yield Figure("monitor: key p99", setting.store, found["p99"], "ms", None, f"{half} tasks/s")
    yield Figure("monitor: key, slowest", setting.store, found["most"], "ms", None, f"{half} tasks/s")
    yield Figure("monitor: idle", setting.store, found["idle"], "% of a core")


def _fill(queue: Queue, scale: int) -> None:
    plan = Plan(name="videos", phases=tuple(PhasePlan(name=name) for name in PHASES))
    definitions.publish(queue.store, [plan])
    for first in range(0, scale, BATCH):
        queue.store.insert(rows(first, scale, queue.store))


async def _measure(queue: Queue) -> dict[str, float]:
    app = Monitor(queue)
    found: dict[str, float] = {}
    async with app.run_test(size=(160, 50)) as pilot:
        while app.first_read_ms is None:
            await asyncio.sleep(0.01)
        found["first"] = app.first_read_ms
        for page in _PAGES:
            await app.action_go(page)
            await pilot.pause(1.0)
            shown = app.page
            assert isinstance(shown, Page)
            found[page] = max([await _read(app, shown) for _ in range(_READS)])
        await app.action_go("tasks")
        await pilot.pause(2.0)
        taken = [await _key(app, "down" if number % 40 < 20 else "up") for number in range(_KEYS)]
    found |= {"p50": median(taken), "p99": quantiles(taken, n=100)[98], "most": max(taken)}
    return found


async def _read(app: Monitor, page: Page) -> float:
    read = page.reading()
    began = time.perf_counter()
    await app.in_background(read)
    return (time.perf_counter() - began) * 1000


async def _key(app: Monitor, key: str) -> float:
    """Return the milliseconds from a key to the cursor that was moved by it and drawn."""
    grid = app.screen.query_one("#list", Grid)
    await asyncio.sleep(0.05)
    before, began = grid.cursor, time.perf_counter()
    app.post_message(events.Key(key, None))
    while grid.cursor == before and time.perf_counter() - began < 5:
        await asyncio.sleep(0)
    drawn = asyncio.Event()
    app.screen.call_after_refresh(drawn.set)
    await asyncio.wait_for(drawn.wait(), 5)
    return (time.perf_counter() - began) * 1000


async def _idle(queue: Queue) -> float:
    """Return the percentage of a core that a monitor takes on the board, without keys."""
    app = Monitor(queue)
    async with app.run_test(size=(160, 50)) as pilot:
        await pilot.pause(3.0)
        cpu, began = time.process_time(), time.perf_counter()
        await asyncio.sleep(_IDLE_FOR)
        return (time.process_time() - cpu) / (time.perf_counter() - began) * 100
