"""Tasks to measure with: nothing to do, and a payload as people have it."""

from typing import Any

from onerow.cli.bench.ground import Ground
from onerow.core.pipeline import Pipeline
from onerow.wiring import Queue

PAYLOAD = {"ts": 0.0, "to": "x" * 60}


def fill(queue: Queue, pipeline: Pipeline, count: int) -> None:
    for first in range(0, count, 1000):
        queue.add_many(pipeline, [PAYLOAD] * min(1000, count - first))


def one_phase(ground: Ground, count: int) -> Pipeline:
    pipeline = ground.pipeline()
    pipeline.phase(name="noop")(noop)
    with_queue = ground.queue()
    with_queue.publish(pipeline)
    fill(with_queue, pipeline, count)
    with_queue.close()
    return pipeline


async def noop(job: Any) -> None:
    """Nothing, quickly."""
