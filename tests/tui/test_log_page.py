"""The page with the log of several tasks."""

from datetime import timedelta

from onerow.engine.queue.queue import Queue
from onerow.engine.views import Views
from onerow.engine.views.merged_log import MOST_TASKS, read_merged
from onerow.ports import LogLine
from tests.samples import NOW, SECOND, a_task
from tests.tui.conftest import opened, run


def _line(task_id: str, at: int, text: str, level: str = "info") -> LogLine:
    return LogLine(task_id, NOW + timedelta(seconds=at), "video", 1, level, text)


def test_lines_of_all_tasks_are_in_the_order_of_time_and_each_is_read_once(queue: Queue) -> None:
    queue.store.append_log([_line("runs", -3, "first"), _line("runs", -1, "third"), _line("done", -2, "second")])
    views = Views(queue)
    first = read_merged(views, queue, "", {})
    assert [line.text for line in first.lines][-3:] == ["first", "second", "third"]
    assert first.tasks["runs"].title == "Wolken"
    queue.store.append_log([_line("runs", 0, "fourth")])
    second = read_merged(views, queue, "", first.positions)
    assert [line.text for line in second.lines] == ["fourth"]
    assert read_merged(views, queue, "", second.positions).lines == []


def test_a_query_chooses_the_tasks_and_their_number_is_bounded(queue: Queue) -> None:
    ids = [f"many-{number}" for number in range(MOST_TASKS + 5)]
    queue.store.insert([a_task(each, title=each, created_at=NOW - SECOND, run_at=NOW) for each in ids])
    queue.store.append_log([_line(each, 0, each) for each in ids])
    found = read_merged(Views(queue), queue, "status:waiting title:many", {})
    assert len(found.positions) == MOST_TASKS
    assert found.more
    assert [line.task_id for line in read_merged(Views(queue), queue, "status:failed", {}).lines] == ["failed"] * 2


def test_new_lines_are_followed_filtered_by_level_and_found(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            await session.press("8")
            await session.sees("looking for", "following", "running or just ended")
            queue.store.append_log(
                [_line("runs", 1, "조수 frame 12 🌊", "info"), _line("runs", 2, "disk is full", "error")]
            )
            await session.sees("조수 frame 12", "disk is full", "Wolken")
            await session.press("l", "l", "l")
            await session.until(lambda: "조수 frame" not in session.text)
            await session.sees("disk is full", "level error")
            await session.press("l", "home")
            await session.sees("f: follow", "조수 frame 12")
            await session.press("slash")
            await session.type("full")
            await session.press("enter")
            await session.until(
                lambda: session.monitor.page is not None and session.monitor.page.main_grid.key.startswith("runs")
            )
            await session.press("enter")
            await session.sees("Wolken", "attempts")
            await session.press("escape", "colon")
            await session.type("log status:failed")
            await session.press("enter")
            await session.sees("log of 1 task matching status:failed", "it is not there")
            await session.until(lambda: "disk is full" not in session.text)

    run(test)
