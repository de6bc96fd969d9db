"""A worker process that measures itself: one JSON argument in, one JSON line out."""

import json
import resource
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.commands import talking
from onerow.engine.worker import Worker
from onerow.engine.worker.supervisor import ease_collector
from onerow.inboxes.folder import FolderInbox
from onerow.pipelines.pipeline import Pipeline
from onerow.wiring import Queue, open_store


class Probe:
    """Counts calls and records their times."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.calls = 0
        self.first = self.last = 0.0
        self.latencies: list[float] = []
        self.done = threading.Event()
        self.marks: list[float] = []  # time of every thousandth call

    def tick(self, job: Any) -> None:
        now = time.time()
        if self.calls == 0:
            self.first = now
        self.calls += 1
        if self.calls <= self.count:
            self.last = now
        if self.calls % 1000 == 0:
            self.marks.append(now)
        if self.calls >= self.count:
            self.done.set()


def main() -> None:
    """Serve the pipeline until all its tasks have run, or it is idle."""
    request = json.loads(sys.argv[1])
    probe = Probe(request["count"])
    pipeline = Pipeline(request["pipeline"])
    _add_phases(pipeline, probe, request)
    store = open_store(request["url"])
    count = getattr(store, "count_statements", None)
    statements = None if count is None else count()
    queue = Queue(store, keep=request.get("keep"))
    if request.get("folder"):
        queue.receive(FolderInbox(request["folder"], pipeline=pipeline.name))
    live = bool(request.get("latency") or request.get("idle_for"))
    pipelines = [pipeline]
    if request.get("talk"):
        pipelines.append(Pipeline(f"{pipeline.name}-flood") if live else Pipeline(pipeline.name))
        talking(pipelines[-1])
    worker = Worker(queue, pipelines if live else pipelines[-1:], until_idle=not live)
    ease_collector()  # as `onerow worker` does
    if request.get("go"):
        print("ready", flush=True)
        sys.stdin.readline()
    if request.get("enough"):
        threading.Thread(target=_enough, args=(worker, probe), daemon=True).start()
    if live:
        threading.Thread(target=_live, args=(worker, probe, request), daemon=True).start()
    before = time.process_time()
    worker.run()
    cpu = time.process_time() - before
    span = max(probe.last - probe.first, 1e-9)
    print(
        json.dumps(
            {
                "rate": min(probe.calls, probe.count) / span,
                "first": probe.first,
                "last": probe.last,
                "calls": probe.calls,
                "cpu": cpu,
                "statements": statements() if statements else None,
                "latencies": probe.latencies,
                "marks": probe.marks,
            }
            | request.get("found", {})
        )
    )


def _add_phases(pipeline: Pipeline, probe: Probe, request: dict[str, Any]) -> None:
    tick = probe.tick

    async def noop(job: Any) -> None:
        tick(job)

    def noop_in_thread(job: Any) -> None:
        tick(job)

    async def timed(job: Any) -> None:
        probe.latencies.append(time.time() - job["ts"])
        tick(job)

    function: Callable[..., Any] = (
        noop_in_thread if request.get("threads") else timed if request.get("latency") else noop
    )
    count = request.get("phases", 1)
    for number in range(count):
        pipeline.phase(name="noop" if count == 1 else f"noop{number}", timeout="30s", **request.get("limits", {}))(
            function
        )


def _live(worker: Worker, probe: Probe, request: dict[str, Any]) -> None:
    worker.ready.wait()
    print("ready", flush=True)
    if request.get("idle_for"):
        time.sleep(2)
        before = time.process_time()
        time.sleep(request["idle_for"])
        request["found"] = {
            "idle_cpu": (time.process_time() - before) / request["idle_for"],
            "rss": _resident(),
        }
    else:
        probe.done.wait(60)
        time.sleep(0.2)
    worker.stop()


def _enough(worker: Worker, probe: Probe) -> None:
    probe.done.wait()
    worker.stop()


def _resident() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
