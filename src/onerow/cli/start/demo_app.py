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


@videos.phase(lease="3s")
def script(job: dict[str, Any]) -> str:
    return f"Everything about {job['topic']}, in two minutes."


videos.wait_for("images", signal="images.ready", timeout="10m")


@videos.phase(concurrency=3, lease="3s")
def video(job: dict[str, Any], ctx: Context) -> str:
    """Render the video; a second attempt starts at the frame recorded in the row."""
    for frame in range(ctx.task.progress["done"] if ctx.task.progress else 0, FRAMES):
        ctx.check()
        time.sleep(max(0.05, 0.1 * PACE))
        ctx.progress(frame + 1, FRAMES)
    return f"{job['topic']}.mp4"


@videos.phase
def subtitles(job: dict[str, Any], script: str) -> int:
    return len(script.split())


@videos.phase(retry=Retry(3, wait=1.0))
def upload(job: dict[str, Any], video: str, ctx: Context) -> str:
    """Upload the video; the network fails once."""
    if job["topic"] == "Wolken" and ctx.attempt == 1:
        raise ConnectionError("connection reset")
    return f"published {video}"
