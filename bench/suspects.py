"""Benchmark of suspects: tasks whose worker died, each of which runs next in its own process."""

import time
from collections.abc import Iterator

from bench.setting import Figure, Setting
from onerow.core import rules
from onerow.engine.worker import Worker
from onerow.engine.worker.cores import cores
from onerow.pipelines.pipeline import Pipeline
from onerow.ports import Move
from onerow.wiring import Queue

_COUNT = 400


def suspects(setting: Setting) -> Iterator[Figure]:
    """Time in which one worker drains 400 suspects, against 400 tasks of an isolated phase, one process per core."""
    queue = setting.queue()
    alone, together = setting.pipeline(), setting.pipeline()
    alone.phase(name="run", isolate="process")(run)
    together.phase(name="run")(run)
    queue.add_many(alone, range(_COUNT))
    processes = _drain(queue, alone, concurrency=cores())
    tasks = queue.add_many(together, range(_COUNT))
    with queue.claim(together, limit=_COUNT, worker="dead") as leases:
        queue.store.swap([Move(lease.task, rules.rescue(lease.task, queue.store.now())) for lease in leases])
    found = _drain(queue, together, concurrency=16)
    assert all(task.ended for task in queue.store.fetch([task.task_id for task in tasks]))
    yield Figure("400 suspects", setting.store, found, "s", processes, "400 isolated")
    queue.close()


async def run(job: int) -> int:
    """Do almost nothing."""
    return job


def _drain(queue: Queue, pipeline: Pipeline, concurrency: int) -> float:
    began = time.monotonic()
    Worker(queue, [pipeline], concurrency=concurrency, until_idle=True).run()
    return time.monotonic() - began
