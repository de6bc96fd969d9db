"""A worker that is idle, or whose concurrency is fully used, uses almost no CPU."""

import threading
import time

import pytest

from onerow import Pipeline, Queue, Status
from tests.engine.kit import reached, working


def share_of_a_core(seconds: float = 1.0) -> float:
    """Return the share of a core that this process uses, measured for a moment."""
    used, since = time.process_time(), time.monotonic()
    threading.Event().wait(seconds)
    return (time.process_time() - used) / (time.monotonic() - since)


@pytest.mark.parametrize("state", ["idle", "full", "paused", "only waiting phases"])
def test_a_waiting_worker_does_not_spin(queue: Queue, state: str) -> None:
    go = threading.Event()
    pipeline = Pipeline("clips")
    if state == "only waiting phases":
        pipeline.wait_for("ok", signal="ok")
    else:
        pipeline.phase(name="run")(lambda job: go.wait(900) and None)
    if state == "paused":
        queue.pause(pipeline)
    if state != "idle":
        first, *_ = queue.add_many(pipeline, range(3))
    with working(queue, pipeline, concurrency=1, interval=1):
        if state == "full":
            reached(queue, first, Status.PROCESSING)
        share = share_of_a_core()
        go.set()
    assert share < 0.5
