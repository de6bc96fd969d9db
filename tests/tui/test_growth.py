"""A monitor that runs for long does not grow: reads, pages and operations leave no objects, threads or files behind."""

import asyncio
import gc
import os
import threading
import time

import psutil
import pytest

from onerow.engine.queue.queue import Queue
from onerow.ports import LogLine
from tests.samples import NOW
from tests.tui.conftest import Session, opened, run

PAGES = "12345678"
_ROUNDS = 3
_MOST_OBJECTS = 2_000  # of about 200,000; a leak of one page's content per round is more


async def _round(session: Session, queue: Queue, number: int) -> None:
    """Visit every page and a task, open a dialog, and let the log grow."""
    queue.store.append_log([LogLine("runs", NOW, "video", 1, "info", f"line {number}.{each}") for each in range(50)])
    for key in PAGES:
        await session.press(key)
        await session.read()
    await session.press("2")
    await session.read()
    await session.press("enter")
    await session.read()
    await session.press("question_mark", "escape", "escape")


def _objects() -> int:
    gc.collect()
    return len(gc.get_objects())


@pytest.mark.slow
def test_rounds_over_all_pages_leave_nothing_behind(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue, interval=60.0) as session:
            for number in range(2):  # pages are created once
                await _round(session, queue, number)
            gc.unfreeze()
            objects, threads = _objects(), threading.active_count()
            files = psutil.Process().num_fds()
            for number in range(_ROUNDS):
                await _round(session, queue, number + 2)
            log_lines = _ROUNDS * 50
            assert _objects() - objects < _MOST_OBJECTS + 20 * log_lines
            assert threading.active_count() <= threads
            assert psutil.Process().num_fds() <= files + 2

    run(test)


@pytest.mark.slow
def test_an_hours_run_does_not_grow(queue: Queue) -> None:
    """ONEROW_MONITOR_MINUTES shortens it."""
    minutes = float(os.environ.get("ONEROW_MONITOR_MINUTES", "60"))
    process = psutil.Process()

    async def test() -> None:
        async with opened(queue, interval=0.1) as session:
            for number in range(60):  # the bounded log is full after these
                await _round(session, queue, number)
            before = process.memory_info().rss
            until = time.monotonic() + minutes * 60
            while time.monotonic() < until:
                await _round(session, queue, 0)
                await asyncio.sleep(1)
            assert process.memory_info().rss - before < 30_000_000

    run(test)
