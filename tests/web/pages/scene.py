"""A studio at work, for the pictures of the guide: tasks in every phase, failures, a worker, an act under way."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from onerow import Context, Pipeline, Queue, Retry
from tests.engine.kit import until, working

TOPICS = (
    "Tides",
    "조류의 비밀",
    "海洋紀錄片",
    "Why the sky is blue",
    "Les marées",
    "Clouds",
    "月の満ち欠け",
    "Wind and sand",
)


def studio() -> list[Pipeline]:
    chance = random.Random(7)
    clips, mails = Pipeline("clips", title="{topic}"), Pipeline("mails", title="{to}")

    @clips.phase(concurrency=4, rate="600/min", retry=Retry(2, wait=1.0))
    def script(job: Any, ctx: Context) -> Any:
        ctx.log(f"writing about {job['topic']}")
        ctx.step("outline", lambda: {"parts": ["why", "how", "when"]})
        time.sleep(chance.uniform(0.05, 0.3))
        if chance.random() < 0.15:
            raise ConnectionError("429 too many requests")
        return {"text": f"Everything about {job['topic']}"}

    clips.wait_for("images", signal="images.ready", timeout="10m")

    @clips.phase(concurrency=3, retry=Retry(1, wait=1.0))
    def video(job: Any, ctx: Context) -> str:
        for frame in range(40):
            ctx.check()
            time.sleep(chance.uniform(0.02, 0.12))
            ctx.progress(frame + 1, 40, note=f"frame {60 * frame + 60}")
            if frame == 20 and job["number"] % 4 == 0:
                raise TimeoutError("the encoder did not answer for 30 s")
        return "out/clip.mp4"

    @clips.phase
    def upload(job: Any) -> Any:
        time.sleep(0.1)
        if job["number"] % 9 == 0:
            raise PermissionError("the token has expired")
        return {"url": "https://example.test/clip"}

    clips.cron("0 9 * * 1-5", name="weekdays", tz="Asia/Seoul", payload={"topic": "the week", "number": 1})

    @mails.phase(rate="300/min")
    async def send(job: Any) -> None: ...

    return [clips, mails]


@contextmanager
def scene(queue: Queue) -> Iterator[None]:
    """Run the studio during the block, which begins when there is something to see on every page."""
    clips, mails = studio()
    queue.publish(clips, mails)
    for number in range(240):
        queue.add(clips, {"topic": f"{TOPICS[number % len(TOPICS)]} {number}", "number": number})
    queue.add_many(mails, [{"to": f"reader {number}"} for number in range(400)])
    stop = threading.Event()

    def send_signals() -> None:
        while not stop.wait(1.0):
            for task in queue.find("status:parked", limit=4).tasks:
                queue.signal(task.task_id, "images.ready", ["cover.png"], by="api")

    sender = threading.Thread(target=send_signals)
    with working(queue, clips, mails, concurrency=8):
        sender.start()
        try:
            until(lambda: len(queue.find("status:failed phase:video").tasks) > 2, "failures")
            yield
        finally:
            stop.set()
            sender.join()
