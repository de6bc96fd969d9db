"""Render docs/demo.svg and docs/board.svg from a run of the demo: python docs/render_pictures.py"""

import io
import re
import tempfile
import time
from pathlib import Path

from rich.console import Console

from onerow.cli.inspect.board import rich_board
from onerow.cli.start.demo import running_demo
from onerow.engine.views import Views

HERE = Path(__file__).parent
URL = "sqlite:////tmp/demo.db"


def new_console() -> Console:
    return Console(record=True, width=112, file=io.StringIO(), force_terminal=True)


def save(console: Console, name: str, title: str) -> None:
    text = console.export_svg(title=title)
    # Use the reader's fonts: the picture must not fetch any.
    text = re.sub(r"@font-face \{.*?\}\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    HERE.joinpath(name).write_text(re.sub(r"sqlite:[^<\s]*demo\.db", URL, text), encoding="utf-8")


def main() -> None:
    resumed_at = None
    with tempfile.TemporaryDirectory() as folder, running_demo(Path(folder), new_console(), 1.0) as demo:
        while demo.look():
            if resumed_at is None and "resumes" in demo.console.export_text(clear=False):
                resumed_at = time.monotonic()
            if resumed_at is not None and time.monotonic() > resumed_at + 1.2:
                demo.console.print(demo.table())
                save(demo.console, "demo.svg", "make demo")
                board = new_console()
                board.print(rich_board(Views(demo.queue)))
                save(board, "board.svg", "onerow watch")
                return
            time.sleep(0.1)


if __name__ == "__main__":
    main()
