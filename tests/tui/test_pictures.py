"""The pictures of the guide are screens of the sample store; ONEROW_GOLDEN=write renders them again."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from onerow.core import rules
from onerow.engine.control.stats import STATS, note_name
from onerow.engine.queue.queue import Queue
from onerow.ports import Move, Note
from tests.cli.conftest import VIDEOS
from tests.samples import BROKEN, HOPELESS, NOW, SECOND, a_task, claimed
from tests.tui.conftest import Session, compare_picture, opened, run

SIZE = (110, 28)
MINUTE = timedelta(minutes=1)
TOPICS = (
    "Why tides lag", "등대의 역사", "Harbour seals", "海流の地図", "Gezeitenkraft", "Les phares", "Kelp forests", "潮汐发电",
    "Shipping lanes", "Sea ice", "해녀", "Storm surges",
)  # fmt: skip
# Phase: tasks done in each of the last 14 minutes, and the buckets of their run and wait times.
PACE = {
    "script": ((3, 4, 4, 5, 3, 4, 6, 5, 4, 4, 5, 3, 4, 5), 87, 70),
    "video": ((1, 0, 1, 1, 0, 1, 0, 1, 1, 0, 1, 0, 1, 0), 121, 128),
    "youtube": ((1, 0, 1, 1, 0, 1, 0, 1, 1, 0, 1, 0, 0, 1), 98, 60),
}


def furnish(queue: Queue) -> None:
    """Add what makes the store look as if it has worked for a while: more tasks, attempts, and statistics."""
    store = queue.store
    added = [
        a_task(f"v{n:02}", phase="video" if n < 9 else "script", title=title, created_at=NOW - 40 * MINUTE,
               run_at=NOW - (20 - n) * MINUTE, payload={"topic": title})
        for n, title in enumerate(TOPICS)
    ]  # fmt: skip
    broken = a_task(
        "lunar-cycle", title="Lunar cycle", created_at=NOW - 9 * MINUTE, run_at=NOW - 9 * MINUTE, user_id="u1"
    )
    store.insert([*added, broken])
    runs = added[-1]
    (wolken,) = store.fetch(["runs"])
    at, tried = broken.created_at + 20 * SECOND, broken
    for seconds in (42, 25, 61):
        at += seconds * SECOND
        why = HOPELESS if seconds == 61 else BROKEN
        tried = rules.fail(claimed(tried, at - seconds * SECOND), why, VIDEOS, at, by="w1")
        at = tried.run_at
    store.swap(
        [
            Move(runs, replace(claimed(runs, NOW - 14 * SECOND), version=2, progress_json='{"done":2,"total":5}')),
            Move(wolken, replace(wolken, version=wolken.version + 1, started_at=NOW - 4 * MINUTE)),
            Move(broken, replace(tried, version=2)),
        ]
    )
    store.write_notes(
        [
            Note(
                STATS,
                note_name(f"{NOW - (13 - n) * MINUTE:%Y-%m-%dT%H:%M}", "videos", phase, "w2"),
                {"done": done, "run": {str(run): done}, "wait": {str(wait): done}},
            )
            for phase, (minutes, run, wait) in PACE.items()
            for n, done in enumerate(minutes)
            if done
        ]
    )


async def _board(session: Session) -> None:
    await session.sees("Wolken", "no such topic")


async def _tasks(session: Session) -> None:
    await session.press("2")
    await session.sees("Les marées")


async def _dialog(session: Session) -> None:
    await _tasks(session)
    await session.press("space", "space", "C")
    await session.sees("Cancel 2 tasks?")


async def _task(session: Session) -> None:
    await session.press("colon")
    await session.type("task lunar")
    await session.press("enter")
    await session.sees("not reached", "permanent: no such topic", "3 attempts")


async def _failures(session: Session) -> None:
    await session.press("3")
    await session.sees("for example")


async def _workers(session: Session) -> None:
    await session.press("4")
    await session.sees("w1", "Wolken")


async def _pulse(session: Session) -> None:
    await session.press("7")
    await session.sees("backlog now")


async def _log(session: Session) -> None:
    await session.press("8")
    await session.sees("it is not there")


async def _add(session: Session) -> None:
    await session.press("n")
    await session.sees("$ onerow add videos")


SCREENS = {
    "board": _board, "tasks": _tasks, "dialog": _dialog, "task": _task, "failures": _failures, "workers": _workers,
    "pulse": _pulse, "add": _add, "log": _log,
}  # fmt: skip


@pytest.mark.parametrize("name", SCREENS)
def test_the_screen_looks_as_in_the_guide(queue: Queue, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onerow.tui.app.monotonic", lambda: 0.0)  # the age of what is shown does not depend on load

    furnish(queue)

    async def test() -> None:
        async with opened(queue, size=SIZE) as session:
            await SCREENS[name](session)
            await session.until(lambda: "reading" not in session.text and "counting" not in session.text)
            compare_picture(name, session.svg)

    run(test)
