"""A real worker for fault tests: python -m tests.stores.postgres.worker URL. Prints 'away' when the store is unavailable."""

import asyncio
import sys

from onerow import Pipeline, Queue, Status
from onerow.engine.events.events import StoreUnreachable
from onerow.engine.worker import Worker

pipeline = Pipeline("hurt")


@pipeline.phase(lease="3s")
async def work(job: int) -> int:
    await asyncio.sleep(0.02)
    return job


def added(queue: Queue, count: int) -> list[str]:
    """Add `count` tasks, each of which returns its number; return their ids."""
    queue.publish(pipeline)
    return [task.task_id for task in queue.add_many(pipeline, list(range(count)))]


def done(queue: Queue) -> int:
    return sum(tally.count for tally in queue.count() if tally.status is Status.COMPLETED)


def must_have_one_outcome(queue: Queue, ids: list[str]) -> None:
    """Assert that each task of `added` was completed once, with its own result."""
    for number, task_id in enumerate(ids):
        task = queue.get(task_id)
        assert (task.status, task.result) == (Status.COMPLETED, number)
        assert [entry.what for entry in task.history].count("completed") == 1, task.history


def main() -> None:
    queue = Queue(sys.argv[1])
    queue.on(StoreUnreachable, lambda event: print("away", flush=True))
    Worker(queue, [pipeline], concurrency=4, interval="100ms").run()


if __name__ == "__main__":
    main()
