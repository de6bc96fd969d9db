"""The pictures of the guide are screens of the sample store; ONEROW_GOLDEN=write renders them again."""

import pytest

from onerow.engine.queue.queue import Queue
from tests.tui.conftest import Session, compare_picture, opened, run

SIZE = (110, 28)


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
    await session.type("task failed")
    await session.press("enter")
    await session.sees("not reached", "permanent: no such topic")


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

    async def test() -> None:
        async with opened(queue, size=SIZE) as session:
            await SCREENS[name](session)
            await session.until(lambda: "reading" not in session.text and "counting" not in session.text)
            compare_picture(name, session.svg)

    run(test)
