"""Benchmark the views over a million rows: python -m bench.views [ROWS]. Milliseconds, best of five."""

import sys
import tempfile
from collections.abc import Callable
from datetime import timedelta
from time import perf_counter, process_time

from msgspec.structs import replace

from onerow.core.plan import PhasePlan, Plan
from onerow.core.status import CANCELLED, COMPLETED, FAILED
from onerow.core.task import Task
from onerow.engine.control import definitions
from onerow.engine.queue.insert import new_ids
from onerow.engine.queue.queue import Queue
from onerow.engine.views import Views
from onerow.ports import Store
from onerow.stores.sqlite import SqliteStore
from tests.samples import a_task

PHASES = ("script", "video", "youtube")
BATCH = 10_000


def rows(start: int, total: int, store: Store) -> list[Task]:
    """Return tasks: half have ended (one in twenty of them failed), half are waiting."""
    now = store.now()
    found = []
    for number, task_id in enumerate(new_ids(now, BATCH), start=start):
        at = now - timedelta(seconds=total - number)
        task = a_task(
            task_id, created_at=at, run_at=at, updated_at=at, phase=PHASES[number % 3], user_id=f"u{number % 1000}",
            title=f"Video {number} about the tides", payload={"topic": f"topic {number % 5000}", "n": number},
        )  # fmt: skip
        if number < total // 2:
            status = FAILED if number % 20 == 0 else CANCELLED if number % 20 == 1 else COMPLETED
            cause = {"error": "ConnectionError: refused", "error_class": "network"} if status is FAILED else {}
            task = replace(task, status=status, completed_at=at, **cause)
        found.append(task)
    return found


def main(total: int) -> None:
    with tempfile.TemporaryDirectory(prefix="onerow-bench-") as folder:
        store = SqliteStore(f"{folder}/views.db", profile="fast")
        store.prepare()
        definitions.publish(store, [Plan(name="videos", phases=tuple(PhasePlan(name=name) for name in PHASES))])
        for start in range(0, total, BATCH):
            store.insert(rows(start, total, store))
        print(f"{total:,} rows\n")
        queue = Queue(store)
        views = Views(queue)
        oldest = queue.find(limit=1, order="oldest").tasks[0]
        waiting = queue.find("status:waiting phase:video", limit=1).tasks[0]
        looks: dict[str, Callable[[], object]] = {
            "counts": views.overview,
            "board": views.board,
            "list": views.find,
            "list status:failed": lambda: views.find("status:failed"),
            "list status:failed phase:video": lambda: views.find("status:failed phase:video"),
            "list status:waiting": lambda: views.find("status:waiting"),
            "list status:completed": lambda: views.find("status:completed"),
            "list status:processing": lambda: views.find("status:processing"),
            "list user:u7": lambda: views.find("user:u7"),
            "list error:network": lambda: views.find("error:network"),
            "list age:>1h": lambda: views.find("age:>1h"),
            "list title:(rare, stops)": lambda: views.find('title:"ideo 12345 "'),
            "list title:(common)": lambda: views.find("title:tides"),
            "list payload.topic:… (stops)": lambda: views.find("payload.n:17"),
            "list free text (stops)": lambda: views.find("nothing like this"),
            "failures": views.failures,
            "show": lambda: views.task(oldest.task_id),
            "why": lambda: views.why(waiting),
        }
        print(f"{'':32}{'wall ms':>10}{'cpu ms':>10}")
        for name, look in looks.items():
            best, cpu = 1e9, 1e9
            for _ in range(5):
                wall_began, cpu_began = perf_counter(), process_time()
                look()
                best, cpu = min(best, perf_counter() - wall_began), min(cpu, process_time() - cpu_began)
            print(f"{name:32}{best * 1000:10.1f}{cpu * 1000:10.1f}")
        store.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
