"""Render docs/demo.svg and docs/board.svg from a run of the demo: python docs/render_pictures.py"""

import io
import re
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from onerow.cli.inspect.board import rich_board
from onerow.cli.start.demo.process import DemoProcess
from onerow.cli.start.demo.screen import paint
from onerow.cli.start.demo.script import Story
from onerow.cli.start.demo.studio import videos
from onerow.engine.queue.queue import Queue
from onerow.engine.views import Views
from onerow.wiring import open_store

HERE = Path(__file__).parent
URL = "sqlite:////tmp/demo.db"


def save(picture: Any, name: str, title: str) -> None:
    console = Console(record=True, width=112, file=io.StringIO(), highlight=False, force_terminal=True)
    console.print(picture)
    text = console.export_svg(title=title)
    # Use the reader's fonts: the picture must not fetch any.
    text = re.sub(r"@font-face \{.*?\}\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    HERE.joinpath(name).write_text(text, encoding="utf-8")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/demo.db"
        queue = Queue(open_store(url))
        queue.publish(videos)
        process = DemoProcess(Path(folder), url, 1.0)
        lines: list[str] = []
        began = time.monotonic()
        story = Story(
            queue,
            process,
            lambda line: lines.append(
                f"{'':8}{line}" if line[0] == " " else f"{time.monotonic() - began:5.1f}s  {line}"
            ),
        )
        taken_at = None
        try:
            story.begin()
            process.open()
            phases = [phase.name for phase in videos.plan.phases]
            while not story.over:
                story.look()
                if taken_at is None and any("goes on" in line for line in lines):
                    taken_at = time.monotonic()
                if taken_at and time.monotonic() > taken_at + 1.2:
                    taken_at = float("inf")
                    picture = paint(story.tasks, phases, story.cast(), lines, queue.store.now(), URL)
                    save(picture, "demo.svg", "make demo")
                if any("failed to upload" in line for line in lines) and not (HERE / "board.new").exists():
                    (HERE / "board.new").touch()
                    save(rich_board(Views(queue)), "board.svg", "onerow watch")
                time.sleep(0.1)
        finally:
            (HERE / "board.new").unlink(missing_ok=True)
            process.close()
            queue.close()
    path = HERE / "board.svg"
    path.write_text(re.sub(r"sqlite:[^<\s]*demo\.db", URL, path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
