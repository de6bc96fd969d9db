"""A monitor of the sample store, driven by keys."""

import asyncio
import gc
import os
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from textual.pilot import Pilot

from onerow.engine.queue.queue import Queue
from onerow.tui.app import Monitor
from onerow.tui.garbage import Collector
from onerow.wiring import open_store
from tests.cli.conftest import frozen, town  # noqa: F401  fixtures

PATIENCE = 900.0
PICTURES = Path(__file__).parents[2] / "docs" / "monitor"


@pytest.fixture(autouse=True)
def no_freeze(monkeypatch: pytest.MonkeyPatch) -> None:
    """The monitor would search all collected tests for garbage at its start, and undo the freeze of them at its end."""
    monkeypatch.setattr(Collector, "start", lambda self: gc.disable())
    monkeypatch.setattr(Collector, "stop", lambda self: gc.enable())


class Session:
    """A monitor in a test: press keys, wait for what is shown."""

    def __init__(self, monitor: Monitor, pilot: Pilot[None]) -> None:
        self.monitor = monitor
        self.pilot = pilot

    async def until(self, condition: Callable[[], bool], what: str = "") -> None:
        """Wait until a condition holds; fail with the screen if it does not."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE
        while not condition():
            assert loop.time() < deadline, f"{what or 'the condition'} did not come true:\n{self.text}"
            await self.pilot.pause(0.02)

    async def sees(self, *texts: str) -> None:
        """Wait until all texts are on the screen."""
        await self.until(lambda: all(text in self.text for text in texts), f"{texts} on the screen")

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def read(self) -> None:
        """Wait for another read of the page."""
        before = self.monitor.reads_done
        self.monitor.poke()
        await self.until(lambda: self.monitor.reads_done > before, "a read")
        await self.pilot.pause()

    async def type(self, text: str) -> None:
        await self.pilot.press(*("space" if char == " " else char for char in text))
        await self.pilot.pause()

    @property
    def svg(self) -> str:
        return normal_svg(self.monitor.export_screenshot(title="onerow monitor"))

    @property
    def text(self) -> str:
        """The screen as lines of text; a wide character is followed by nothing."""
        return svg_text(self.monitor.export_screenshot())


@pytest.fixture
def queue(town: str) -> Iterator[Queue]:  # noqa: F811
    opened = Queue(open_store(town))
    yield opened
    opened.close()


@asynccontextmanager
async def opened(queue: Queue, *, size: tuple[int, int] = (110, 32), **options: Any) -> AsyncIterator[Session]:
    """Run a monitor without a terminal until the block ends; the first page is read."""
    monitor = Monitor(queue, **options)
    async with monitor.run_test(size=size, notifications=True) as pilot:
        session = Session(monitor, pilot)
        await session.until(lambda: monitor.reads_done > 0, "the first read")
        await pilot.pause()
        yield session


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run an async test."""
    asyncio.run(test())


def compare_picture(name: str, svg: str) -> None:
    """Compare a screen with the picture of that name in the guide; ONEROW_GOLDEN=write writes it instead."""
    path = PICTURES / f"{name}.svg"
    if os.environ.get("ONEROW_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(svg, encoding="utf-8")
    known = path.read_text(encoding="utf-8")
    # The text first: its difference says more than that of the pictures.
    assert svg_text(svg) == svg_text(known)
    assert svg == known


def normal_svg(svg: str) -> str:
    """Return an exported screen without what changes from run to run, without fonts from elsewhere, and with the
    width of wide characters in cells."""
    svg = re.sub(r"terminal-\d+", "terminal", svg)
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"sqlite:[^<\s]*town\.db", "sqlite:///queue.db", svg)
    return _TEXT.sub(_with_width, svg)


_TEXT = re.compile(r'(<text class="[^"]*" x="(?P<x>[\d.]+)" y="(?P<y>[\d.]+)" textLength=")(?P<long>[\d.]+)("[^>]*>)(?P<text>.*?)(</text>)')  # fmt: skip
_CELL = 12.2
_FIRST_LINE, _LINE = 20.0, 24.4


def _with_width(found: re.Match[str]) -> str:
    long = f"{cell_len(unescape(found['text'])) * _CELL:g}"
    return f"{found[1]}{long}{found[5]}{found['text']}{found[7]}"


def svg_text(svg: str) -> str:
    """Return the text of an exported screen, line by line."""
    lines: dict[float, list[tuple[float, str]]] = {}
    for found in _TEXT.finditer(svg):
        text = unescape(found["text"]).replace("\xa0", " ")
        lines.setdefault(float(found["y"]), []).append((float(found["x"]), text))
    shown: list[str] = []
    for y, parts in sorted(lines.items()):
        shown += [""] * (round((y - _FIRST_LINE) / _LINE) - len(shown))  # lines without text are not in the picture
        line = ""
        for x, text in sorted(parts):
            line += " " * (round(x / _CELL) - cell_len(line)) + text
        shown.append(line.rstrip())
    return "\n".join(shown)
