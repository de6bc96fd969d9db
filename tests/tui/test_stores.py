"""The monitor on PostgreSQL and MongoDB: every page, the operations, a server that stops and returns, nothing left."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest

from onerow.core.status import Status
from onerow.engine.control import definitions
from onerow.engine.queue.queue import Queue
from onerow.tui.screens.task import TaskPage
from onerow.wiring import open_store
from tests.cli.conftest import fill
from tests.conformance.stores import ENTRIES
from tests.samples import NOW
from tests.servers.mongo import MongoServer
from tests.servers.postgres import PostgresServer
from tests.tui.conftest import Session, opened, run

SERVERS = ("postgres", "mongo")
PAGES = {
    "1": ("videos", "script", "Wolken", "75%", "no such topic"),
    "2": ("Tides", "조수와 달", "月の満ち欠け", "failed 1"),
    "3": ("no such topic", "videos.script", "permanent"),
    "4": ("w1", "alive", "Wolken", "30s"),
    "5": ("No schedule",),
    "6": ("script", "video", "3 retries"),
    "7": ("all phases", "completed", "wait p95", "backlog now"),
    "8": ("looking for", "it is not there"),
}


@pytest.fixture(params=SERVERS)
def queue(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    """The sample tasks in a database on a real server."""
    monkeypatch.setattr("getpass.getuser", lambda: "ann")
    entry = ENTRIES[request.param]
    store = entry.open(entry.fresh(request), lambda: NOW)
    store.prepare()
    fill(store)
    opened = Queue(store)
    yield opened
    opened.close()


@contextmanager
def nothing_left() -> Iterator[None]:
    """Check that a block leaves no thread of the monitor and no connection of this process behind."""
    before, threads = _connections(), set(threading.enumerate())
    yield
    left = set(threading.enumerate()) - threads
    assert not [each.name for each in left if each.name.startswith("onerow-monitor")]
    assert _connections() <= before


def _connections() -> set[Any]:
    return {each.laddr for each in psutil.Process(os.getpid()).net_connections("tcp") if each.status == "ESTABLISHED"}


def test_every_page_opens(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            for key, texts in PAGES.items():
                await session.press(key)
                await session.sees(*texts)
            await session.press("colon")
            await session.type("task failed")
            await session.press("enter")
            await session.sees("no such topic", "attempts")
            for name, text in (("log", "it is not there"), ("data", "payload"), ("history", "w1")):
                page = session.monitor.page
                assert isinstance(page, TaskPage)
                while page.state.tab != name:
                    await session.press("tab")
                await session.sees(text)

    run(test)


def test_operations_change_what_is_stored(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue, query="status:failed") as session:
            await session.sees("No such")
            await session.press("r")
            await session.sees("$ onerow retry failed")
            await session.press("y")
            await session.until(lambda: queue.get("failed").status is Status.WAITING)
            await session.press("colon")
            await session.type("tasks status:waiting")
            await session.press("enter")
            await session.sees("Tides", "조수와 달")
            await session.press("asterisk", "C")
            await session.sees("Cancel 5 tasks?", "$ onerow cancel --where status:waiting")
            await session.press("y")
            await session.until(lambda: queue.get("later").status is Status.CANCELLED)
            await session.sees("cancel: 5 tasks")
            await session.press("1")
            await session.sees("script")
            await session.press("home", "p")
            await session.sees("Pause videos?")
            await session.press("y")
            await session.until(lambda: ("videos", "*") in definitions.load_controls(queue.store).pauses)
            await session.press("n")
            await session.sees("onerow add videos")
            await session.press("escape")

    run(test)


def test_a_stopped_postgresql_is_shown_and_survived(own_postgres: PostgresServer) -> None:
    _stop_and_return(own_postgres, own_postgres.fresh_database())


@pytest.mark.slow
def test_a_stopped_mongodb_is_shown_and_survived(own_mongo: MongoServer) -> None:
    _stop_and_return(own_mongo, own_mongo.fresh_database())


def _stop_and_return(server: PostgresServer | MongoServer, url: str) -> None:
    with nothing_left():
        store = open_store(url)
        store.prepare()
        fill(store)
        queue = Queue(store)

        async def test() -> None:
            async with opened(queue) as session:
                await session.sees("Wolken", "● live")
                server.kill()
                await session.sees("store unavailable", "old")
                assert "Wolken" in session.text
                await _answers_keys(session)
                server.start()
                await session.sees("● live")
                await session.press("2")
                await session.sees("Tides")

        try:
            run(test)
        finally:
            queue.close()


async def _answers_keys(session: Session) -> None:
    """Keys and pages that were not read yet work without a store."""
    await session.press("4")
    await session.until(lambda: session.monitor.trail.here.page == "workers")
    await session.press("question_mark")
    await session.sees("drain the worker")
    await session.press("escape", "1")
    await session.sees("Wolken", "store unavailable")
