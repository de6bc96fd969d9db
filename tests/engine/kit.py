"""Helpers shared by the tests of the engine."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from onerow import Filter, Pipeline, Queue, Status, Task, Worker

PATIENCE = 900.0
"""Seconds for which tests wait for a change before they fail; enough for a loaded machine."""

ON_SQLITE = pytest.mark.parametrize("queue", ["sqlite"], indirect=True)
"""For slow tests and tests that start processes: they run on one store only."""

T = TypeVar("T")


def until(look: Callable[[], T | None], what: str = "", seconds: float = PATIENCE) -> T:
    """Poll `look` until it returns a true value; return it."""
    deadline = time.monotonic() + seconds
    pause = 0.01
    while not (found := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what or 'it'} did not come in {seconds:.0f} s; the last look found {found!r}")
        time.sleep(pause)
        pause = min(pause * 1.2, 0.05)  # a look costs time that the others need
    return found


def ended(queue: Queue, task: Task | str, seconds: float = PATIENCE) -> Task:
    """Wait until the task has ended; return it."""
    task_id = task if isinstance(task, str) else task.task_id
    until(lambda: queue.get(task_id).ended, f"the end of {task_id}", seconds)
    return queue.get(task_id)


def reached(queue: Queue, task: Task, status: Status, phase: str = "") -> Task:
    """Wait until the task has a status (and phase); return it."""

    def there() -> bool:
        now = queue.get(task.task_id)
        return now.status is status and phase in ("", now.phase)

    until(there, f"{status} {phase}")
    return queue.get(task.task_id)


def work(queue: Queue, *pipelines: Pipeline, **options: Any) -> Worker:
    """Run a worker in this thread until no task is due."""
    worker = Worker(queue, pipelines, until_idle=True, **({"grace": "1s"} | options))
    assert worker.run() == 0
    return worker


@contextmanager
def working(queue: Queue, *pipelines: Pipeline, **options: Any) -> Iterator[Worker]:
    """Run a worker in a thread until the block ends; then stop it immediately."""
    terms: dict[str, Any] = {"grace": "1s", "interval": 0.05} | options
    worker = Worker(queue, pipelines, **terms)
    thread = threading.Thread(target=worker.run, name="worker of a test", daemon=True)
    thread.start()
    try:
        assert worker.ready.wait(PATIENCE)
        yield worker
    finally:
        worker.stop(hurry=True)
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the worker did not stop"


def finish_all(queue: Queue, *pipelines: Pipeline, **options: Any) -> list[Task]:
    """Run a worker until all tasks have ended; return them."""
    with working(queue, *pipelines, **options):
        until(lambda: not everything(queue, statuses=frozenset({Status.WAITING, Status.PROCESSING})), "the last end")
    return everything(queue)


def everything(queue: Queue, **where: Any) -> list[Task]:
    """Return all tasks, oldest first."""
    return queue.find(Filter(**where), limit=10_000, order="oldest").tasks


def history_of(task: Task) -> list[tuple[str, str]]:
    """Return the history as (what, phase) pairs."""
    return [(entry.what, entry.phase) for entry in task.history]


def texts(queue: Queue, task: Task, *levels: str) -> list[str]:
    """Return the task's log lines."""
    return [line.text for line in queue.logs(task.task_id).lines if not levels or line.level in levels]
