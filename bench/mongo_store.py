"""Benchmark batch sizes and statements on MongoDB: python -m bench.mongo_store [mongodb://host/database]

Without a URL it starts a test server. Each figure is a rate and its ratio to a minimal pymongo loop in the same run.
"""

import statistics
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta

from msgspec.structs import replace

from bench.baselines.mongo import Baseline
from onerow.core import rules
from onerow.core.task import Task
from onerow.ports import Claim, Move, PhaseClaim
from onerow.stores.mongo import MongoStore
from tests.samples import a_task
from tests.servers.mongo import MongoServer

TASKS = 2_000
RUNS = 3
WANT = PhaseClaim(pipeline="bench", phase="noop", limit=1, lease_for=timedelta(minutes=5))
PAYLOAD = {"ts": 0.0, "to": "x" * 60}

Measure = Callable[[MongoStore], int]


def a_backlog(store: MongoStore, count: int, **changes: object) -> list[Task]:
    now = store.now()
    blank = a_task(payload=PAYLOAD, pipeline="bench", phase="noop", created_at=now, run_at=now, updated_at=now)
    tasks = [replace(blank, task_id=str(uuid.uuid4()), **changes) for _ in range(count)]
    for first in range(0, count, 1_000):
        store.insert(tasks[first : first + 1_000])
    return tasks


def drain(store: MongoStore, size: int, want: PhaseClaim = WANT) -> int:
    """Settle the last batch and claim the next until no task is left; return the number of tasks."""
    claim = Claim("bench", [replace(want, limit=size)])
    moves: list[Move] = []
    done = 0
    while True:
        _, held = store.settle_and_claim(moves, claim)
        if not held:
            return done
        now = store.now()
        moves = [Move(task, rules.finish(task, '{"ok":true}', now, by="bench")) for task in held]
        done += len(held)


def shapes() -> Iterator[tuple[str, bool | None, Measure]]:
    """Yield (name, whether bulk writes are answered row by row, measurement)."""
    for size in (1, 16, 100, 500):
        yield f"drain, {size} per round", None, lambda store, size=size: drain(store, size)  # type: ignore[misc]
    yield "drain, 100 per round, settled singly in flight", False, lambda store: drain(store, 100)
    yield "drain, 16 slots", None, lambda store: drain(store, 16, replace(WANT, slots=16))


def measured(url: str, bulk: bool | None, run: Measure) -> float:
    store = MongoStore(url, collection=f"q{uuid.uuid4().hex[:8]}", bulk=bulk)
    store.prepare()
    a_backlog(store, TASKS)
    began = time.perf_counter()
    done = run(store)
    rate = done / (time.perf_counter() - began)
    assert done == TASKS
    store._connections.collections().tasks.drop()
    store.close()
    return rate


def floor(url: str) -> float:
    baseline = Baseline(url)
    baseline.add_many(TASKS)
    seconds = baseline.drain(TASKS)
    baseline.close()
    return TASKS / seconds


def claim_cost(url: str, waiting: int, not_due: int) -> float:
    """Return the milliseconds of one claim of 100 with the given numbers of tasks in front."""
    store = MongoStore(url, collection=f"q{uuid.uuid4().hex[:8]}")
    store.prepare()
    ahead = store.now() + timedelta(days=300)
    a_backlog(store, not_due, priority=-50, run_at=ahead)
    a_backlog(store, waiting)
    times = []
    for _ in range(8):
        began = time.perf_counter()
        assert len(store.claim(Claim("bench", [replace(WANT, limit=100)]))) == 100
        times.append(time.perf_counter() - began)
    store._connections.collections().tasks.drop()
    store.close()
    return statistics.median(times) * 1_000


def main(url: str) -> None:
    """Print each rate and ratio, then the cost of a claim with few and with many tasks in front."""
    for name, bulk, run in shapes():
        pairs = [(measured(url, bulk, run), floor(url)) for _ in range(RUNS)]
        ratio = statistics.median(rate / baseline for rate, baseline in pairs)
        rate = statistics.median(rate for rate, _ in pairs)
        print(f"{name:<46}{rate:>8,.0f} /s {ratio:>7.2f} of the baseline", flush=True)
    few = claim_cost(url, 1_000, 0)
    for waiting, not_due in ((100_000, 0), (1_000, 100_000)):
        cost = claim_cost(url, waiting, not_due)
        print(
            f"claim of 100, {waiting:,} waiting, {not_due:,} not due: {cost:.1f} ms, {cost / few:.2f} of that with 1,000"
        )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        server = MongoServer()
        try:
            main(server.fresh_database())
        finally:
            server.close()
