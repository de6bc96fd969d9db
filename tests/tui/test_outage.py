"""The monitor survives the absence of its store, hanging reads and resizing."""

import asyncio
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from textual import events

from onerow.core.errors import StoreUnavailable
from onerow.engine.queue.queue import Queue
from onerow.engine.views import Views
from onerow.tui.app import Monitor
from onerow.tui.places import Place
from tests.tui.conftest import opened, run


def test_the_last_data_stay_while_the_store_is_away_and_it_continues_by_itself(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            await session.sees("Wolken")
            with monkeypatch.context() as patch:
                patch.setattr(Views, "board", _away)
                session.monitor.poke()
                await session.sees("store unavailable", "connection refused", "old")
                assert "Wolken" in session.text
            await session.sees("● live")

    run(test)


def _away(*_: Any, **__: Any) -> None:
    raise StoreUnavailable("connection refused")


def test_a_read_that_hangs_does_not_delay_keys_or_other_pages(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def hang(self: Views, *_: Any, **__: Any) -> None:
        release.wait(900)
        raise StoreUnavailable("too late")

    async def test() -> None:
        async with opened(queue) as session:
            with monkeypatch.context() as patch:
                patch.setattr(Views, "board", hang)
                session.monitor.poke()
                await session.pilot.pause(0.1)
                await session.press("4")
                await session.sees("w1", "alive")
                assert not release.is_set()
            release.set()

    run(test)


def test_a_form_that_waits_for_the_store_delays_no_keys(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    release, called = threading.Event(), threading.Event()

    def hang(*_: Any, **__: Any) -> None:
        called.set()
        release.wait(900)
        raise StoreUnavailable("connection refused")

    async def test() -> None:
        async with opened(queue, interval=900) as session:
            with monkeypatch.context() as patch:
                patch.setattr(Views, "plans", hang)
                await session.press("n")
                await session.until(called.is_set)
                await session.press("4")
                await session.until(lambda: session.monitor.trail.here.page == "workers")
                release.set()
                await session.sees("connection refused")  # the monitor says why, and continues
                assert len(session.monitor.screen_stack) == 1

    run(test)


def test_a_page_that_was_read_before_says_how_old_it_is(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            await session.sees("Wolken")
            await session.press("4")
            await session.sees("alive")
            monkeypatch.setattr(Views, "board", _away)
            await session.press("1")
            await session.sees("store unavailable; shown:", " old", "Wolken")

    run(test)


def test_a_replaced_file_asks_for_a_new_start(queue: Queue, tmp_path: Path) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            shutil.copy(tmp_path / "town.db", tmp_path / "copy.db")
            (tmp_path / "copy.db").replace(tmp_path / "town.db")
            await session.sees("quit and start the monitor again", "old: the database file was replaced", "Wolken")

    run(test)


def test_stopped_updates_say_so_and_continue(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            await session.press("full_stop")
            await session.sees("stopped")
            reads = session.monitor.reads_done
            await session.pilot.pause(1.3)
            assert session.monitor.reads_done == reads
            await session.press("ctrl+r")
            await session.until(lambda: session.monitor.reads_done > reads)
            await session.press("full_stop")
            await session.sees("● live")

    run(test)


def test_a_resized_terminal_is_drawn_again(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue, size=(120, 40)) as session:
            await session.press("2")
            await session.sees("Tides")
            await session.pilot.resize_terminal(70, 15)
            await session.read()
            await session.sees("Tides")
            assert all(len(line) <= 70 for line in session.text.split("\n"))

    run(test)


def test_a_wrong_query_and_an_unknown_task_are_explained(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            await session.press("2", "slash")
            await session.type("stats:x")
            await session.press("enter")
            await session.sees("no key stats:", "did you mean 'status:'?")
            await session.press("colon")
            await session.type("task nowhere")
            await session.press("enter")
            await session.sees("no task 'nowhere'")
            await session.press("colon")
            await session.type("boards")
            await session.press("enter")
            await session.sees("did you mean 'board'?")

    run(test)


def test_an_operation_that_must_count_or_read_first_does_not_delay_keys(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()

    def count_late(*_: Any, **__: Any) -> None:
        release.wait(900)
        raise StoreUnavailable("connection refused")

    monkeypatch.setattr(Views, "count", count_late)

    async def test() -> None:
        async with opened(queue, query="phase:script") as session:
            await session.sees("Tides")
            # Posted, because the pilot waits until a key was handled.
            for key in ("asterisk", "C", "4"):
                session.monitor.post_message(events.Key(key, None))
            await session.sees("alive")
            release.set()
            await session.sees("connection refused")
            with monkeypatch.context() as patch:
                patch.setattr(Views, "plans", _away)
                await session.press("n")
                await session.until(lambda: session.text.count("connection refused") == 2)
            await session.press("n")
            await session.sees("Add a task")

    run(test)


def test_a_read_that_ends_just_when_another_task_is_opened_is_not_shown(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with opened(queue, interval=900.0) as session:
            monitor, loop = session.monitor, asyncio.get_running_loop()
            await monitor.go(Place("task", "failed"))
            await session.sees("no such topic")
            page = monitor.page
            assert page is not None
            read = page.reading()

            def read_and_go(views: Views) -> Any:
                found = read(views)
                loop.call_soon_threadsafe(lambda: asyncio.ensure_future(monitor.go(Place("task", "done"))))
                return found

            with monkeypatch.context() as patch:
                patch.setattr(page, "reading", lambda: read_and_go)
                monitor.poke()
                await session.until(lambda: monitor.trail.here.argument == "done")
            await session.sees("It was completed")

    run(test)


def test_a_read_that_ends_while_the_monitor_ends_is_not_shown(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    board, shown = Views.board, list[Any]()

    async def test() -> None:
        async with opened(queue, interval=900) as session:
            await session.sees("Wolken")
            monitor, page = session.monitor, session.monitor.page
            assert page is not None
            monkeypatch.setattr(page, "show", shown.append)
            with monkeypatch.context() as patch:

                def late(views: Views) -> Any:
                    patch.setattr(Monitor, "page", None)  # as soon as it ends
                    return board(views)

                patch.setattr(Views, "board", late)
                await monitor._read(page)
                assert shown == []
            await monitor._read(page)
            assert len(shown) == 1

    run(test)
