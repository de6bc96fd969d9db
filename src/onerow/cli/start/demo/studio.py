"""The app of the demo: a video pipeline of plain functions."""

import os
import time
from typing import Any

from onerow.core.retry import Retry
from onerow.engine.handler.context import Context
from onerow.pipelines.pipeline import Pipeline

PACE = float(os.environ.get("ONEROW_DEMO_PACE", "1"))
FRAMES = 48

videos = Pipeline("videos", title="{topic}")


@videos.phase(concurrency=2, lease="3s", timeout="1m")
def script(job: dict[str, Any]) -> str:
    """Write the script."""
    time.sleep(0.5 * PACE)
    return f"Everything about {job['topic']}, in two minutes."


videos.wait_for("images", signal="images.ready", timeout="10m")


@videos.phase(concurrency=2, lease="3s", timeout="1m")
def video(job: dict[str, Any], script: str, images: list[str], ctx: Context) -> str:
    """Render the video; a second attempt starts at the frame recorded in the row."""
    done = ctx.task.progress["done"] if ctx.task.progress else 0
    print(f"rendering from frame {done} of {FRAMES}")
    for frame in range(done, FRAMES):
        ctx.check()
        time.sleep(max(0.05, 0.1 * PACE))
        ctx.progress(frame + 1, FRAMES)
    return f"{job['topic']}.mp4"


@videos.phase(concurrency=3, lease="3s", timeout="1m")
def subtitles(job: dict[str, Any], script: str) -> int:
    """Count the words of the subtitles."""
    time.sleep(0.4 * PACE)
    return len(script.split())


@videos.phase(retry=Retry(3, wait=1.0, factor=1), lease="3s", timeout="1m")
def upload(job: dict[str, Any], video: str, ctx: Context) -> str:
    """Upload the video; the network fails once."""
    time.sleep(0.3 * PACE)
    if job.get("unlucky") and ctx.attempt == 1:
        raise ConnectionError("the network went away")
    return f"published {video}"
