"""A worker process of `onerow simulate --validate`: python -m onerow.simulator.validation_worker URL PIPELINE SLOTS"""

import asyncio
import sys
import threading
from datetime import UTC, datetime

from onerow.core.times import since_epoch
from onerow.engine.worker import Worker
from onerow.engine.worker.supervisor import ease_collector
from onerow.pipelines.pipeline import Pipeline
from onerow.wiring import Queue, open_store

HANDLER_TAKES = 0.1
"""Seconds that a handler sleeps."""


def serve_pipeline(name: str, behind: float = 0.0) -> Pipeline:
    """Return the pipeline; its handler returns when it started and ended, by the store's clock, in ms since 1970.

    behind: milliseconds by which this host's clock is behind that of the store.
    """
    pipeline = Pipeline(name)

    async def work() -> list[float]:
        started = _now() + behind
        await asyncio.sleep(HANDLER_TAKES)
        return [started, _now() + behind]

    pipeline.phase(name="work")(work)
    return pipeline


def _now() -> int:
    return since_epoch(datetime.now(UTC))


def main(url: str, name: str, slots: int) -> int:
    """Serve the pipeline until stdin is closed."""
    queue = Queue(open_store(url))
    before = _now()
    stored = since_epoch(queue.store.now())
    behind = stored - (before + _now()) / 2
    worker = Worker(queue, [serve_pipeline(name, behind)], concurrency=slots)
    ease_collector()

    def control() -> None:
        worker.ready.wait()
        print("ready", flush=True)
        sys.stdin.read()
        worker.stop()

    threading.Thread(target=control, daemon=True).start()
    return worker.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
