"""Helpers for tests of stores: insert, claim, swap and read tasks in one call."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from onerow.core import values
from onerow.core.filters import Filter
from onerow.core.rules.attempts import Done, decide
from onerow.core.status import Status
from onerow.core.task import Task
from onerow.ports import Claim, Inserted, Move, PhaseClaim, Searchable, Store, Swapped
from tests.samples import PLAN, a_task

BLINK = timedelta(milliseconds=150)
"""A duration short enough to wait for in a test of a store whose clock can't be set."""
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def new(store: Store, task_id: str = "t1", **changes: Any) -> Task:
    """Return a new task, due now by the store's clock, without inserting it."""
    now = store.now()
    times = {"created_at": now, "run_at": now, "updated_at": now}
    return a_task(task_id, **(times | changes))


def put(store: Store, task_id: str = "t1", **changes: Any) -> Task:
    """Insert a new task and return it."""
    (answer,) = store.insert([new(store, task_id, **changes)])
    assert isinstance(answer, Inserted), answer
    return answer.task


def put_many(store: Store, count: int, **changes: Any) -> list[Task]:
    tasks = [new(store, f"t{n:04d}", **changes) for n in range(count)]
    assert all(isinstance(answer, Inserted) for answer in store.insert(tasks))
    return tasks


def want(limit: int = 10, phase: str = "script", lease_for: timedelta = MINUTE, **more: Any) -> PhaseClaim:
    return PhaseClaim(pipeline=more.pop("pipeline", "videos"), phase=phase, limit=limit, lease_for=lease_for, **more)


def claim(
    store: Store, limit: int = 10, worker: str = "w1", ids: Sequence[str] | None = None, **more: Any
) -> list[Task]:
    return store.claim(Claim(worker, [want(limit, **more)], ids))


def claim_one(store: Store, **more: Any) -> Task:
    (task,) = claim(store, 1, **more)
    return task


def claimed_ids(store: Store, limit: int = 10, **more: Any) -> list[str]:
    return [task.task_id for task in claim(store, limit, **more)]


def swap(store: Store, before: Task, after: Task, *, if_dead: bool = False) -> Task:
    """Write a move that must succeed; return the stored task."""
    (answer,) = store.swap([Move(before, after, if_dead)])
    assert isinstance(answer, Swapped), answer
    return answer.task


def stored(store: Store, task_id: str = "t1") -> Task:
    (task,) = store.fetch([task_id])
    return task


def every_row(store: Store, **where: Any) -> dict[str, Task]:
    """Return all rows by id, including tombstones."""
    found: dict[str, Task] = {}
    after = None
    while True:
        page = store.find(Filter(hidden=True, **where), limit=500, order="oldest", after=after)
        found |= {task.task_id: task for task in page.tasks}
        after = page.next
        if after is None:
            return found


def standing(tasks: Sequence[Task]) -> dict[str, Status]:
    return {task.task_id: task.status for task in tasks}


def same(one: Task, other: Task) -> bool:
    """Whether two tasks are equal as values; the text of JSON columns may differ."""
    return _plain(one) == _plain(other)


def _plain(task: Task) -> dict[str, Any]:
    fields = msgspec.structs.asdict(task)
    return {name: values.decode(value) if name.endswith("_json") else value for name, value in fields.items()}


def work_off(store: Store, limit: int = 500, **more: Any) -> list[str]:
    """Claim tasks and complete them like a worker; return the claimed ids."""
    tasks = claim(store, limit, **more)
    now = store.now()
    decided = [(task, decide(task, PLAN, Done('"ok"'), now, "w1")) for task in tasks]
    store.swap([Move(task, after) for task, after in decided if after is not None])
    return [task.task_id for task in tasks]


def read_everything(store: Store) -> None:
    """Call every operation that reads tasks; each must succeed beside an unreadable row."""
    now = store.now()
    store.ready(frozenset({("videos", "script")}), now)
    for wanted in (want(), want(slots=100, key_slots=100)):
        store.claimable(wanted, now)
    store.due("videos", "script", now, 100)
    store.leases(limit=100)
    store.count(Filter())
    store.find(Filter(text="nothing"))
    assert sum(line.count for line in store.count(Filter())) == len(every_row(store))
    if isinstance(store, Searchable):
        store.store_counts()
        store.search(Filter(title_text="nothing", text="nothing"), within=MINUTE)
