"""What the stored fixtures contain: `write` fills an empty store, `drain` works it off, EXPECTED says how it ends."""

import threading
import time
from datetime import timedelta

from onerow.core.filters import Filter
from onerow.core.status import WAITING
from onerow.engine.queue.queue import Queue
from onerow.engine.worker import Worker
from onerow.ports import Claim, PhaseClaim, Store
from tests.compatibility.app import PIPELINES, albums, archive, videos

PATIENCE = 900.0
"""Seconds that a loaded machine may take to drain a fixture."""

EXPECTED = {
    "waiting": "completed",
    "한국어 🎬": "completed",
    "not-due": "waiting",
    "parked": "completed",
    "early-signal": "completed",
    "leased": "completed",
    "failed": "failed",
    "retrying": "waiting",
    "cancelled": "cancelled",
    "completed": "completed",
    "unique": "completed",
    "remembered": "completed",
    "album": "completed",
}
"""The status of each task once every signal has come and a worker has drained the store."""


def write(store: Store) -> None:
    """Fill an empty store through the queue and a worker, as an application does."""
    queue = Queue(store)
    queue.publish(*PIPELINES)
    for name, more in (
        ("parked", {}),
        ("early-signal", {}),
        ("leased", {}),
        ("cancelled", {}),
        ("completed", {}),
        ("failed", {"error": "permanent"}),
        ("retrying", {"error": "network"}),
        ("not-due", {"scheduled_time": "2999-01-01T00:00:00Z"}),
    ):
        payload = {"topic": name, "size": 2**53, "part": 0.5} | more
        queue.add(videos, payload, task_id=name, user_id="u1", metadata={"source": "fixture"})
    queue.add(videos, {"topic": "unique"}, task_id="unique", unique="key-1", limit_key="k", priority=7)
    queue.add(videos, {"topic": "remembered"}, task_id="remembered", unique="key-2", unique_for="forever")
    queue.add(archive, "purged", task_id="purged", unique="key-3", unique_for="forever")
    queue.add(albums, {"tracks": ["one", "two", "three"]}, task_id="album")
    for name in ("early-signal", "leased", "remembered", "completed"):
        queue.signal(name, "images.ready", {"path": f"{name}.png"}, signal_id=f"signal-{name}", by="fixture")
    queue.pause(videos, "video", reason="tasks shall stay here", by="fixture")
    Worker(queue, until_idle=True, interval=0.05).run()
    queue.cancel("cancelled", by="fixture", note="not wanted")
    queue.finish("remembered", result="by hand", by="fixture")
    queue.finish("completed", result="by hand", by="fixture")
    queue.purge(older_than=0, pipeline="archive")
    wanted = PhaseClaim(pipeline="videos", phase="video", limit=1, lease_for=timedelta(seconds=1))
    store.claim(Claim("a-worker-that-is-gone", [wanted], ["leased"]))
    queue.resume(videos, "video")
    queue.set_limit(videos, "video", concurrency=1)
    queue.add(videos, {"topic": "waiting"}, task_id="waiting")
    queue.add(videos, {"topic": "한국어"}, task_id="한국어 🎬", title="한국어 🎬")


def drain(store: Store) -> dict[str, str]:
    """Work off what is due and send the signals that tasks wait for; the status of each task at the end."""
    queue = Queue(store)
    worker = Worker(queue, PIPELINES, interval=0.05)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + PATIENCE
    found: dict[str, str] = {}
    try:
        while found != EXPECTED and time.monotonic() < deadline:
            time.sleep(0.1)
            for task in queue.find(Filter(statuses=frozenset({WAITING}), parked=True), limit=500).tasks:
                if task.awaiting is not None and task.awaiting.startswith("signal:"):
                    name = task.awaiting.removeprefix("signal:")
                    queue.signal(task.task_id, name, {"path": "late.png"}, signal_id=f"late-{task.task_id}")
            found = {task_id: str(queue.get(task_id).status) for task_id in EXPECTED}
    finally:
        worker.stop()
        thread.join(PATIENCE)
    return found


def key_is_remembered(store: Store, unique: str) -> bool:
    """Whether an ended task still holds its unique key."""
    pipeline = archive if unique == "key-3" else videos
    return Queue(store).add_new(pipeline, {"topic": "again"}, unique=unique) is None
