"""Every page shows the sample store."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from onerow.core.labels import Labels, Tab
from onerow.core.query import parse_query
from onerow.engine.control import definitions
from onerow.engine.queue.queue import Queue
from onerow.stores.sqlite import SqliteStore
from onerow.tui.grid import Grid
from onerow.tui.places import narrowed
from tests.cli.conftest import VIDEOS
from tests.samples import NOW, SECOND, a_task
from tests.tui.conftest import opened, run


def test_the_board_shows_phases_running_tasks_and_failures(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            await session.sees("videos", "script", "youtube", "Wolken", "75%", "no such topic")
            assert "waits for images.ready" in session.text

    run(test)


def test_an_empty_store_says_what_to_do(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "empty.db")
    store.prepare()

    async def test() -> None:
        async with opened(Queue(store)) as session:
            await session.sees("Nothing is published. Start a worker, or run: onerow demo --monitor")

    run(test)


def test_the_board_names_the_choke_point(queue: Queue) -> None:
    queue.store.insert([a_task(f"due-{n}", phase="script", created_at=NOW, run_at=NOW) for n in range(12)])

    async def test() -> None:
        async with opened(queue) as session:
            await session.sees("⚠ choke point: 14 due, 2.4/min")

    run(test)


def test_enter_on_a_phase_opens_its_tasks_and_escape_goes_back(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            await session.press("down", "down", "enter")
            await session.sees("pipeline:videos phase:script", "Tides")
            assert "Wolken" not in session.text
            await session.press("escape")
            await session.sees("latest failures")

    run(test)


def test_tabs_show_tasks_of_one_status(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            await session.press("2")
            await session.sees("Tides", "조수와 달", "月の満ち欠け", "Les marées", "failed 1")
            await session.press("tab", "tab")
            await session.sees("status:processing", "Wolken")
            await session.until(lambda: "Tides" not in session.text)
            await session.press("shift+tab")
            await session.sees("status:waiting", "Tides")

    run(test)


def test_the_line_under_the_cursor_stays_in_view(queue: Queue) -> None:
    def add(*numbers: int) -> None:
        queue.store.insert([a_task(f"t{n}", title=f"Title {n}", created_at=NOW + n * SECOND) for n in numbers])

    async def test() -> None:
        async with opened(queue, query="title:Title", interval=900.0) as session:
            grid = session.monitor.screen.query_one("#list", Grid)
            await session.sees("Title 349")
            await session.press("end", "down")
            await session.sees("101 to 200", "Title 249")
            await session.press("up")  # the last line of the page before
            await session.sees(" 1 to 100", "Title 250")
            await session.press("pageup")
            key = grid.key
            add(*range(350, 370))
            await session.read()
            await session.sees(f"Title {key[1:]}")
            assert grid.key == key

    add(*range(100, 350))
    run(test)


@pytest.mark.parametrize(
    "key,texts",
    [
        ("3", ("no such topic", "videos.script", "permanent")),
        ("4", ("w1", "alive", "Wolken", "30s")),
        ("5", ("No schedule",)),
        ("6", ("script", "video", "3 retries")),
        ("7", ("all phases", "completed", "wait p95", "backlog now")),
        ("8", ("looking for", "it is not there", "script#1")),
    ],
)
def test_each_number_opens_its_page(queue: Queue, key: str, texts: tuple[str, ...]) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            await session.press(key)
            await session.sees(*texts)

    run(test)


@pytest.mark.parametrize(
    "query,narrower",
    [
        ("", "status:failed"),
        ("user:u1 sort:oldest", "user:u1 sort:oldest status:failed"),
        ('title:"this or that"', 'title:"this or that" status:failed'),
        ("user:u1 or user:u2", "(user:u1 or user:u2) status:failed"),
        ('user:u1 sort:oldest OR title:"a sort:x"', '(user:u1  OR title:"a sort:x") status:failed sort:oldest'),
    ],
)
def test_a_tab_narrows_every_alternative_of_a_query(query: str, narrower: str) -> None:
    assert narrowed(query, "status:failed") == narrower
    parse_query(narrower, NOW)


def test_labels_of_the_definition_name_tabs_statuses_and_columns(queue: Queue) -> None:
    labels = Labels(
        statuses={"failed": "broken"}, tabs=(Tab("mine", "user:u1"), Tab("filmed", "phase:video")),
        columns=("title", "payload.topic"),
    )  # fmt: skip
    definitions.publish(queue.store, [replace(VIDEOS, labels=labels)])

    async def test() -> None:
        async with opened(queue) as session:
            await session.press("2")
            await session.sees("broken", "mine", "filmed", "topic", "tides")
            await session.press("tab")
            await session.sees("(user:u1)", "조수와 달")
            await session.until(lambda: "Tides" not in session.text)
            await session.press("colon")
            await session.type("task failed")
            await session.press("enter")
            await session.sees("broken in videos")

    run(test)


def test_the_sample_of_a_failure_has_a_line_for_each_part(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            await session.press("3")
            await session.sees("for example failed")
            assert any(line.strip() == "for example failed" for line in session.text.splitlines())

    run(test)
