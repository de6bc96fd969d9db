"""The key table: one meaning per key and page, and every key of it is bound."""

import time
from collections import Counter
from pathlib import Path

import pytest
from textual import events
from textual.widgets import Input

from onerow.engine.queue.queue import Queue
from onerow.tui.app import PAGE_TYPES, THEMES, Monitor
from onerow.tui.grid import Grid
from onerow.tui.keys import KEYS, PAGES, keys_of, markdown_table
from onerow.tui.places import Place
from tests.tui.conftest import opened, run

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "monitor.md"


@pytest.mark.parametrize("page", PAGES)
def test_no_key_has_two_meanings_on_a_page(page: str) -> None:
    used = Counter(each for key in keys_of(page) for each in key.keys.split(","))
    assert [key for key, count in used.items() if count > 1] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_key_of_a_page_is_an_action_of_the_page_its_lists_or_the_monitor(page: str) -> None:
    kind = next(each for each in PAGE_TYPES if each.page == page)
    for key in keys_of(page):
        owner, _, action = (
            key.action.rpartition(".") if key.action.startswith(("app.", "grid.")) else ("", "", key.action)
        )
        target = {"app": Monitor, "grid": Grid, "": kind}[owner]
        assert hasattr(target, f"action_{action.partition('(')[0]}"), key


def test_capital_letters_are_for_operations_only() -> None:
    assert all(key.changes for key in KEYS if key.keys.isalpha() and key.keys.isupper())


def test_read_only_pages_offer_no_key_that_changes_anything() -> None:
    assert not any(key.changes for page in PAGES for key in keys_of(page, read_only=True))


def test_the_guide_has_the_table_of_keys() -> None:
    assert markdown_table() in GUIDE.read_text(encoding="utf-8")


def test_the_question_mark_shows_the_keys_of_the_page(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            await session.press("2", "question_mark")
            await session.sees("Keys: Tasks", "mark or unmark the task", "retry failed tasks")
            assert "drain the worker" not in session.text
            await session.press("escape")
            await session.until(lambda: "Keys: Tasks" not in session.text)

    run(test)


# Of Textual: to scroll, to change the focus, to copy marked text, and to quit.
OTHERS = {
    "left", "right", "up", "down", "home", "end", "pageup", "pagedown", "ctrl+pageup", "ctrl+pagedown",
    "tab", "shift+tab", "super+c", "ctrl+c", "ctrl+q",
}  # fmt: skip


def test_the_keys_that_work_on_a_page_are_those_of_the_table(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            for page in PAGES:
                await session.monitor.go(Place(page, "failed" if page == "task" else ""))
                await session.read()
                bound = {key: each.binding.action for key, each in session.monitor.screen.active_bindings.items()}
                table = {each: key.action for key in keys_of(page) for each in key.keys.split(",")}
                assert {key: bound[key].rpartition(".")[2] for key in table} == {
                    key: action.rpartition(".")[2] for key, action in table.items()
                }
                assert set(bound) - set(table) <= OTHERS

    run(test)


def test_the_palette_has_the_keys_of_the_page_and_runs_them(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            await session.press("4")
            await session.sees("w1")
            for text, question in (("drain the worker", "Drain w1?"), ("add a task", "$ onerow add videos")):
                await session.press("ctrl+p")
                await session.type(text)
                await session.until(lambda text=text: session.text.count(text) > 1)  # type: ignore[misc]
                await session.press("down", "enter")
                await session.sees(question)
                await session.press("escape")

    run(test)


def test_the_palette_of_a_read_only_monitor_changes_nothing(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue, read_only=True) as session:
            offered = {each.title for each in session.monitor.get_system_commands(session.monitor.screen)}
            assert "go to the tasks" in offered
            assert offered.isdisjoint(key.text for key in KEYS if key.changes)

    run(test)


def test_times_can_be_local_and_lists_ordered(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Seoul")
    time.tzset()

    async def test() -> None:
        async with opened(queue, query="id:runs") as session:
            await session.sees("Wolken")
            await session.press("o")
            await session.sees("sort:oldest")
            await session.press("enter")
            await session.sees("02:29:57Z")
            await session.press("u")
            await session.sees("times are in KST", "11:29:57")

    try:
        run(test)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_names_and_values_of_a_query_are_completed(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            await session.press("2", "slash")
            line = session.monitor.screen.query_one(Input)
            await session.type("sta")
            await session.sees("status:")
            await session.press("tab")
            await session.until(lambda: line.value == "status:")
            await session.type("fa")
            await session.sees("failed  ")
            await session.press("tab")
            await session.until(lambda: line.value == "status:failed")
            await session.type(" phase:you")
            await session.sees("youtube  ")
            await session.press("tab", "escape", "colon")
            await session.type("fail")
            await session.sees("failures")
            await session.press("tab", "enter")
            await session.until(lambda: session.monitor.trail.here.page == "failures")

    run(test)


def test_every_theme_can_be_shown(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            seen = set()
            for _ in THEMES:
                await session.press("t")
                seen.add(session.monitor.theme)
                await session.sees("Wolken")
            assert seen == set(THEMES)

    run(test)


def test_what_is_typed_at_once_after_a_slash_or_a_colon_is_not_taken_for_keys(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            await session.press("2")
            await session.sees("Tides")
            for character in "/Wolken":
                session.monitor.post_message(events.Key({"/": "slash"}.get(character, character), character))
            await session.until(lambda: session.monitor.screen.query_one(Input).value == "Wolken")
            assert not session.monitor.screen.is_modal
            await session.press("enter")
            await session.until(lambda: "Tides" not in session.text)
            await session.sees("Wolken")

    run(test)
