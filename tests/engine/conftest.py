"""Every test of this folder that uses a queue runs with several stores, each with its own clock."""

import contextlib
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from onerow import Pipeline, Task, Worker
from onerow.engine.queue.queue import Queue
from onerow.wiring import open_store
from tests.conformance.stores import ENTRIES, Entry
from tests.engine.kit import until as until

PATIENCE = 900.0
"""Seconds after which an expected change counts as missing."""


FOLDER = Path(__file__).parent
SERVERS = ("postgres", "mongo")
PROMISE = re.compile(r"test_p\d")


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is slow
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the two servers, each test uses always the same one; with the other, `make soak` runs it.

    What a store does is tested on every store in tests/conformance; here it is what the engine makes of it. The tests
    of a promise (`test_p1_…`) run with every store.
    """
    for item in items:
        if not isinstance(item, pytest.Function) or FOLDER not in item.path.parents:
            continue
        if PROMISE.match(item.originalname) is None:
            given = getattr(item, "callspec", None)
            name = given.params["entry"].name if given is not None and "entry" in given.params else ""
            if name in SERVERS and name != SERVERS[crc32(item.originalname.encode()) % 2]:
                item.add_marker(pytest.mark.slow)


@pytest.fixture(
    params=[
        pytest.param(entry, id=entry.name, marks=[pytest.mark.slow] if entry.older else [])
        for entry in ENTRIES.values()
        if not entry.slow
    ]
)
def entry(request: pytest.FixtureRequest) -> Entry:
    found: Entry = request.param
    return found


@pytest.fixture
def queue(entry: Entry, request: pytest.FixtureRequest) -> Iterator[Queue]:
    queue = Queue(entry.open(entry.fresh(request), None))
    yield queue
    queue.close()


@pytest.fixture
def sqlite_queue(sqlite_url: str) -> Iterator[Queue]:
    """A queue in a file, for features that the memory store lacks."""
    queue = Queue(open_store(sqlite_url))
    yield queue
    queue.close()


@contextlib.contextmanager
def working(queue: Queue, *pipelines: Pipeline, **options: Any) -> Iterator[Worker]:
    """A worker in a thread of this process, drained at the end."""
    worker = Worker(queue, pipelines, interval=0.2, **options)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    assert worker.ready.wait(PATIENCE)
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def ended(queue: Queue, task_id: str, seconds: float = PATIENCE) -> Task:
    """Wait until the task has ended; return it."""

    def look() -> Task | None:
        task = queue.get(task_id)
        return task if task.ended else None

    task: Task = until(look, f"task {task_id} ends", seconds)
    return task


def parked(queue: Queue, task_id: str, awaiting: str) -> Task:
    """Wait until the task is parked for `awaiting`; return it."""

    def look() -> Task | None:
        task = queue.get(task_id)
        return task if task.awaiting == awaiting else None

    task: Task = until(look, f"task {task_id} is parked for {awaiting}")
    return task
