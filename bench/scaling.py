"""Benchmark a scaling decision: python -m bench.scaling STORE_URL [ROWS]. Milliseconds, median of 21.

A third of the rows wait for phases without a limit, a third behind a full key, a third has ended. The store must be
empty; its rows are not deleted.
"""

import statistics
import sys
from datetime import timedelta
from time import perf_counter

from msgspec.structs import replace

from onerow.core.plan import PhasePlan, Plan
from onerow.core.scaling import ScaleSettings, ScaleState
from onerow.core.status import COMPLETED
from onerow.core.task import Task
from onerow.engine.control import definitions
from onerow.engine.queue.insert import new_ids
from onerow.engine.queue.queue import Queue
from onerow.ports import Claim, PhaseClaim, Store
from onerow.scaling import Scaler
from onerow.wiring import open_store
from tests.samples import a_task

BATCH = 10_000
PLAN = Plan(name="clips", phases=(PhasePlan(name="script"), PhasePlan(name="video", per_key=1)))


def fill(store: Store, total: int) -> None:
    now = store.now()

    def row(number: int, task_id: str) -> Task:
        at = now - timedelta(seconds=total - number)
        times = {"created_at": at, "run_at": at, "updated_at": at}
        if number % 3 == 0:
            return a_task(task_id, pipeline="clips", phase="script", **times)
        if number % 3 == 1:
            # One key holds nearly all rows; every thousandth has one of its own.
            key = f"k{number}" if number % 1000 == 1 else "full"
            return a_task(task_id, pipeline="clips", phase="video", limit_key=key, **times)
        return replace(a_task(task_id, pipeline="clips", phase="video", **times), status=COMPLETED, completed_at=at)

    for start in range(0, total, BATCH):
        ids = new_ids(now, min(BATCH, total - start))
        store.insert([row(number, task_id) for number, task_id in enumerate(ids, start)])
    want = PhaseClaim(pipeline="clips", phase="video", limit=1, lease_for=timedelta(hours=1), key_slots=1)
    store.claim(Claim("bench", [want]))


def main(url: str, total: int) -> None:
    store = open_store(url)
    store.prepare()
    definitions.publish(store, [PLAN])
    fill(store, total)
    for maximum in (8, 2_000):
        scaler = Scaler(Queue(store), ScaleSettings(slots=16, maximum=maximum))
        taken = []
        for _ in range(21):
            began = perf_counter()
            decision = scaler.decide(ScaleState())
            taken.append((perf_counter() - began) * 1000)
        name = url.partition(":")[0]
        print(
            f"{name:11} {total:>9,} rows  at most {maximum:>5,} workers: {statistics.median(taken):7.1f} ms  {decision.why}"
        )
    store.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 100_000)
