"""The mouse: a click selects a line, a second one opens it, pages and tabs are clicked, the wheel scrolls."""

from rich.cells import cell_len
from textual import events

from onerow.engine.queue.queue import Queue
from onerow.tui.grid import Grid
from tests.samples import NOW, SECOND, a_task
from tests.tui.conftest import Session, opened, run


def _at(session: Session, text: str) -> tuple[int, int]:
    """Return column and line of a text on the screen."""
    lines = session.text.split("\n")
    y = next(number for number, line in enumerate(lines) if text in line)
    return cell_len(lines[y].partition(text)[0]), y


async def _click(session: Session, text: str) -> None:
    await session.sees(text)
    await session.pilot.click(offset=_at(session, text))
    await session.pilot.pause()


def test_a_click_selects_a_line_and_a_second_click_opens_it(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            await session.press("2")
            await session.sees("Tides", "Dropped")
            await _click(session, "Dropped")
            grid = session.monitor.screen.query_one("#list", Grid)
            assert grid.key == "gone"
            await _click(session, "Dropped")
            await session.sees("not wanted")

    run(test)


def test_pages_and_tabs_are_clicked(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            await _click(session, "Workers")
            await session.sees("w1", "alive")
            await _click(session, "2 Tasks")
            await session.sees("Tides", "Dropped")
            await _click(session, "failed 1")
            await session.sees("status:failed")
            await session.until(lambda: "Tides" not in session.text)
            await _click(session, "No such")
            await session.press("enter")
            await session.sees("attempts", "related")
            await _click(session, " log ")
            await session.sees("it is not there")

    run(test)


def test_the_wheel_scrolls_a_list(queue: Queue) -> None:
    queue.store.insert(
        [a_task(f"t{number:03}", title=f"Title {number:03}", created_at=NOW - number * SECOND) for number in range(90)]
    )

    async def test() -> None:
        async with opened(queue) as session:
            await session.press("2")
            await session.sees("Title 003")
            grid = session.monitor.screen.query_one("#list", Grid)
            for _ in range(12):
                await session.pilot._post_mouse_events([events.MouseScrollDown], grid, offset=(5, 5))
            await session.until(lambda: grid.scroll_offset.y > 0 and "Title 003" not in session.text)

    run(test)
