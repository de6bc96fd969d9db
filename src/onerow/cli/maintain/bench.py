"""`onerow bench`: measure add, drain and latency on a store, with its own pipeline, which it deletes afterwards."""

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import click

from onerow.cli.output import Output
from onerow.core.filters import Filter
from onerow.core.status import WAITING
from onerow.engine.control import definitions
from onerow.engine.worker import Worker
from onerow.engine.worker.supervisor import ease_collector
from onerow.pipelines.pipeline import Pipeline
from onerow.wiring import Queue, open_store

_PER_TRANSACTION = 1_000
_LATENCIES = 100


@click.command("bench")
@click.option("--store", metavar="URL", help="Store to measure; default: a new SQLite file.")
@click.option(
    "--tasks", type=click.IntRange(1_000, 1_000_000), default=20_000, show_default=True, help="Number of tasks."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(store: str | None, tasks: int, as_json: bool) -> None:
    """Measure how fast tasks are added, run and started on a store.

    Its tasks belong to a pipeline with a new name and do nothing. They are deleted at the end; other tasks are not used.
    """
    out = Output(as_json)
    with tempfile.TemporaryDirectory(prefix="onerow-bench-") as folder:
        url = store or f"sqlite:///{Path(folder) / 'bench.db'}"
        with _own_pipeline(url) as (queue, pipeline):
            figures = list(_measure(queue, pipeline, url, tasks))
    if as_json:
        out.json([{"figure": name, "value": round(value, 3), "unit": unit} for name, value, unit in figures])
    else:
        out.table(["figure", ">value", "unit"], [(name, f"{value:,.1f}", unit) for name, value, unit in figures])


@contextmanager
def _own_pipeline(url: str) -> Iterator[tuple[Queue, Pipeline]]:
    """Publish a pipeline with a new name; delete it and its tasks afterwards."""
    queue = Queue(open_store(url))
    pipeline = Pipeline(f"onerow-bench-{uuid4().hex[:12]}")
    pipeline.phase(name="noop")(_noop)
    try:
        queue.publish(pipeline)
        yield queue, pipeline
    finally:
        own = Filter(pipeline=pipeline.name, statuses=frozenset({WAITING}))
        if queue.find(own, limit=1).tasks:  # interrupted
            queue.select(own).cancel(by="onerow bench")
        while queue.purge(older_than=0, pipeline=pipeline.name):
            pass
        queue.store.drop_notes(definitions.PLAN, [pipeline.name])
        queue.close()


def _measure(queue: Queue, pipeline: Pipeline, url: str, tasks: int) -> Iterator[tuple[str, float, str]]:
    payload = {"sent_at": 0.0, "to": "x" * 60}
    single = tasks // 10
    began = time.perf_counter()
    for _ in range(single):
        queue.add(pipeline, payload)
    yield "add, one transaction each", single / (time.perf_counter() - began), "tasks/s"
    began = time.perf_counter()
    for first in range(single, tasks, _PER_TRANSACTION):
        queue.add_many(pipeline, [payload] * min(_PER_TRANSACTION, tasks - first))
    yield "add_many, 1,000 per transaction", (tasks - single) / (time.perf_counter() - began), "tasks/s"
    with _worker(url, pipeline, tasks) as worker:
        started = _calls(worker)["started_at"]
    yield "drain, one worker process", tasks / max(started[-1] - started[0], 1e-9), "tasks/s"
    with _worker(url, pipeline, _LATENCIES) as worker:
        time.sleep(1.0)  # until the worker is idle
        for _ in range(_LATENCIES):
            queue.add(pipeline, payload | {"sent_at": time.time()})
            time.sleep(0.05)
        delays = sorted(_calls(worker)["delays"])
    yield "latency from add to start, p50", delays[len(delays) // 2] * 1000, "ms"
    yield "latency from add to start, p99", delays[int(len(delays) * 0.99)] * 1000, "ms"


@contextmanager
def _worker(url: str, pipeline: Pipeline, calls: int) -> Iterator[subprocess.Popen[str]]:
    """A worker in another process, ready, that ends after this number of calls or at the end of the block."""
    argv = [sys.executable, "-m", __name__, url, pipeline.name, str(calls)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.stdin.close()  # the signal to stop, also if this process is killed


def _calls(worker: subprocess.Popen[str]) -> dict[str, list[float]]:
    """Wait until the worker has run all its calls; return when each started and how long after it was added."""
    assert worker.stdout is not None
    return json.loads(worker.stdout.readline())  # type: ignore[no-any-return]


async def _noop(job: Any) -> None:
    """Do nothing."""


def _work(url: str, name: str, calls: int) -> None:
    """Serve the pipeline until the calls are done or stdin is closed; print when each call started."""
    started_at: list[float] = []
    delays: list[float] = []
    pipeline = Pipeline(name)

    async def noop(job: Any) -> None:
        started_at.append(time.time())
        delays.append(started_at[-1] - job["sent_at"])
        if len(started_at) == calls:
            worker.stop()

    pipeline.phase(name="noop")(noop)
    worker = Worker(Queue(open_store(url)), [pipeline])
    ease_collector()

    def control() -> None:
        worker.ready.wait()
        print("ready", flush=True)
        sys.stdin.read()
        worker.stop()

    threading.Thread(target=control, daemon=True).start()
    code = worker.run()
    print(json.dumps({"started_at": started_at, "delays": delays}))
    sys.exit(code)


if __name__ == "__main__":
    _work(sys.argv[1], sys.argv[2], int(sys.argv[3]))
