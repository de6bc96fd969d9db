"""Benchmark tasks: a no-op handler and a typical payload."""

from typing import Any

from bench.setting import Setting
from onerow.core.addition import Addition
from onerow.pipelines.pipeline import Pipeline
from onerow.wiring import Queue

PAYLOAD = {"ts": 0.0, "to": "x" * 60}


def fill(queue: Queue, pipeline: Pipeline, count: int, *, keys: int = 0) -> None:
    """Add tasks without a limit key, or with `keys` different ones."""
    for first in range(0, count, 1000):
        numbers = range(first, min(first + 1000, count))
        queue.add_many(pipeline, [Addition(PAYLOAD, limit_key=f"key-{n % keys}") if keys else PAYLOAD for n in numbers])


def one_phase(setting: Setting, count: int, *, keys: int = 0) -> Pipeline:
    pipeline = setting.pipeline()
    pipeline.phase(name="noop")(noop)
    with_queue = setting.queue()
    with_queue.publish(pipeline)
    fill(with_queue, pipeline, count, keys=keys)
    with_queue.close()
    return pipeline


async def noop(job: Any) -> None:
    """Do nothing."""
