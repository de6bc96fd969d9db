"""Operations on phases, schedules and workers."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from onerow.core.schedule import Cron
from onerow.engine.control import definitions
from onerow.engine.control.schedules import PROGRESS
from onerow.engine.queue.queue import Queue
from onerow.engine.views import Views
from onerow.ports import Note
from onerow.tui.control_acts import limit_act, run_now_act
from tests.cli.conftest import VIDEOS
from tests.tui.conftest import opened, run


def test_a_phase_is_paused_with_a_reason_and_resumed(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            await session.press("down", "down", "p")
            await session.sees("Pause videos.script?", "$ onerow pause videos script")
            session.monitor.screen.query_one("#field-reason").focus()
            await session.type("quota")
            await session.sees("$ onerow pause videos script --reason quota")
            await session.press("enter")
            await session.sees("paused: quota")
            await session.press("p")
            await session.sees("Resume videos.script?", "$ onerow resume videos script")
            await session.press("y")
            await session.until(lambda: not definitions.load_controls(queue.store).pauses)

    run(test)


def test_a_whole_pipeline_is_paused_on_its_line(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            await session.press("home", "p")
            await session.sees("Pause videos?", "$ onerow pause videos")
            await session.press("y")
            await session.until(lambda: ("videos", "*") in definitions.load_controls(queue.store).pauses)

    run(test)


@pytest.mark.parametrize("page", "16")
def test_a_paused_phase_does_not_make_its_pipeline_a_paused_one(queue: Queue, page: str) -> None:
    queue.pause("videos", "schedule")

    async def test() -> None:
        async with opened(queue) as session:
            await session.press(page)
            await session.sees("paused")
            await session.press("home", "p")
            await session.sees("Pause videos?", "$ onerow pause videos")
            await session.press("y")
            await session.until(lambda: ("videos", "*") in definitions.load_controls(queue.store).pauses)
            # A phase is resumed with its pipeline.
            await session.read()
            await session.press("down", "down", "p")
            await session.sees("Resume videos?")

    run(test)


def test_limits_and_rates_are_set_and_reset(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            await session.press("6")
            await session.sees("script")
            await session.press("down", "down", "L")
            await session.sees("Set the limits of videos.script?")
            await session.press("backspace")
            await session.type("0")
            await session.sees("a limit is a whole number from 1 to 10,000")
            await session.press("backspace")
            await session.type("5")
            session.monitor.screen.query_one("#field-rate").focus()
            await session.press("end", *["backspace"] * 4)
            await session.type("60/min")
            await session.sees("$ onerow limit videos script 5 --rate 60/min")
            await session.press("enter")
            await session.until(lambda: bool(definitions.load_controls(queue.store).limits))
            (line,) = [each for each in Views(queue).phases() if each.phase == "script"]
            assert (line.lane.limit, line.rate) == (5, "60/min")
            await session.press("L")
            session.monitor.screen.query_one("#field-reset").focus()
            await session.type("yes")
            await session.sees("$ onerow limit videos script --reset")
            await session.press("enter")
            await session.until(lambda: not definitions.load_controls(queue.store).limits)

    run(test)


def test_an_unchanged_limit_is_not_written(queue: Queue) -> None:
    (line,) = [each for each in Views(queue).phases() if each.phase == "script"]
    assert limit_act(queue, line.lane, line.rate, line.rate_per_key).run(lambda text: None) == "no limit was changed"
    assert definitions.load_controls(queue.store).limits == {}


def test_a_schedule_is_shown_run_now_and_paused(queue: Queue) -> None:
    cron = Cron(name="daily", expression="0 9 * * *", tz="Asia/Seoul", payload={"topic": "뉴스"}, user_id="u7")
    definitions.publish(queue.store, [replace(VIDEOS, crons=(cron,))])

    async def test() -> None:
        async with opened(queue) as session:
            await session.press("5")
            await session.sees("daily", "0 9 * * *", "Asia/Seoul", "never")
            await session.press("x")
            await session.sees("Add a task of the schedule daily of videos now?", "onerow add videos --payload")
            await session.press("y")
            await session.sees("added ")
            (task,) = queue.find("user:u7").tasks
            assert (task.payload, task.metadata) == ({"topic": "뉴스"}, {"cron": "daily"})
            await session.press("p")
            await session.sees("Pause schedule daily of videos?", "$ onerow pause videos cron:daily")
            await session.press("y")
            await session.sees("paused by ann")
            (scheduled,) = queue.crons.all()
            assert run_now_act(queue, scheduled).command().startswith("onerow add videos")

    run(test)


def test_a_schedule_that_fails_shows_why(queue: Queue) -> None:
    definitions.publish(queue.store, [replace(VIDEOS, crons=(Cron(name="daily", expression="0 9 * * *"),))])
    body = {"last": "2026-11-15T00:00:00.000Z", "error": "payload needs a topic"}
    queue.store.write_notes([Note(PROGRESS, "videos/daily", body)])

    async def test() -> None:
        async with opened(queue, size=(180, 40)) as session:
            await session.press("5")
            await session.sees("adds no task: payload needs a topic")

    run(test)


def test_a_worker_is_asked_to_drain(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            await session.press("4")
            await session.sees("w1")
            await session.press("D")
            await session.sees("Drain w1?", "finishes 1 task", "$ onerow drain w1")
            await session.press("y")
            await session.until(lambda: [note.name for note in queue.store.notes("drain")] == ["w1"])
            await session.press("down", "D")
            await session.sees("move to a worker first")
            await session.press("enter")
            await session.sees("attempts", "runs")

    run(test)


def test_the_bar_of_a_lease_is_full_for_a_whole_lease_of_the_phase(queue: Queue) -> None:
    phases = tuple(replace(each, lease=timedelta(minutes=2)) for each in VIDEOS.phases)
    definitions.publish(queue.store, [replace(VIDEOS, phases=phases)])

    async def test() -> None:
        async with opened(queue) as session:
            await session.press("4")
            await session.sees("██░░░░░░ 30s")

    run(test)


def test_the_pulse_has_periods_and_phases(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            await session.press("7")
            await session.sees("all phases", "last 1h")
            await session.press("less_than_sign")
            await session.sees("last 15m")
            await session.press("greater_than_sign", "greater_than_sign")
            await session.sees("last 6h")
            await session.press("tab")
            await session.sees("videos.schedule  last")
            await session.press("slash")
            await session.type("youtube")
            await session.press("enter")
            await session.sees("videos.youtube  last")

    run(test)
