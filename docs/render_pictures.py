"""Render docs/demo.svg from a run of the demo, and docs/board.svg from a queue that has run for some minutes:

python docs/render_pictures.py [demo|board]
"""

import io
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from onerow import Queue
from onerow.cli.inspect.board import rich_board
from onerow.cli.start.demo import running_demo
from onerow.engine.views import Views

HERE = Path(__file__).parent
URL = "sqlite:////tmp/demo.db"
MINUTES = 8
"""How long the queue of the board runs: its rates and curves are of minutes."""

APP = """
import random
import time

from onerow import Permanent, Pipeline, Retry

videos = Pipeline("videos", title="{topic}")


@videos.phase
def script(job):
    time.sleep(random.uniform(0.1, 0.6))


videos.wait_for("images", signal="images.ready", timeout="10m")


@videos.phase(concurrency=4)
def render(job):
    time.sleep(random.lognormvariate(0.9, 0.35))


@videos.phase
def subtitles(job):
    time.sleep(random.uniform(0.02, 0.08))


@videos.phase(concurrency=2, retry=Retry(3, wait="5s"))
def upload(job):
    time.sleep(random.uniform(0.3, 1.2))
    if random.random() < 0.05:
        raise ConnectionError("connection reset")
    if random.random() < 0.01:
        raise Permanent("the account is full")
"""


def new_console(width: int = 112) -> Console:
    return Console(record=True, width=width, file=io.StringIO(), force_terminal=True)


def save(console: Console, name: str, title: str) -> None:
    text = console.export_svg(title=title)
    # Use the reader's fonts: the picture must not fetch any.
    text = re.sub(r"@font-face \{.*?\}\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    HERE.joinpath(name).write_text(re.sub(r"sqlite:[^<\s]*demo\.db", URL, text), encoding="utf-8")


def render_demo() -> None:
    resumed_at = None
    with tempfile.TemporaryDirectory() as folder, running_demo(Path(folder), new_console(), 1.0) as demo:
        while demo.look():
            if resumed_at is None and "resumes" in demo.console.export_text(clear=False):
                resumed_at = time.monotonic()
            if resumed_at is not None and time.monotonic() > resumed_at + 1.2:
                demo.console.print(demo.table())
                save(demo.console, "demo.svg", "make demo")
                return
            time.sleep(0.1)


def render_board() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "studio.py").write_text(APP, encoding="utf-8")
        queue = Queue(f"sqlite:///{folder}/demo.db")
        worker = subprocess.Popen(
            [sys.executable, "-m", "onerow", "worker", "studio", "--store", queue.url],
            cwd=folder,
            stderr=subprocess.DEVNULL,
        )
        try:
            time.sleep(5)  # until the worker has published the pipeline
            feed(queue, time.monotonic() + 60 * MINUTES)
            board = new_console(128)
            board.print(rich_board(Views(queue)))
            save(board, "board.svg", "onerow watch")
        finally:
            worker.terminate()
            worker.wait()
            queue.close()


def feed(queue: Queue, until: float) -> None:
    """Add tasks, about one a second, in waves of two minutes, and send signals to those that have waited for a while."""
    number = 0
    while time.monotonic() < until:
        if time.monotonic() % 120 < 90 or random.random() < 0.5:
            number += 1
            queue.add("videos", {"topic": f"film {number}"})
        for task in queue.find("status:parked", limit=1000).tasks:
            if random.random() < 0.08:
                queue.signal(task.task_id, "images.ready", ["a.png"])
        time.sleep(0.6)


if __name__ == "__main__":
    wanted = sys.argv[1:] or ["demo", "board"]
    if "demo" in wanted:
        render_demo()
    if "board" in wanted:
        render_board()
