"""The tasks of a soak: what each one does follows from the seed and its number. Adds them and sends their signals."""

import random
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from onerow.core.addition import Addition
from onerow.core.errors import IllegalMove, StoreError
from onerow.engine.queue.queue import Queue
from onerow.soak.records import Recorder
from onerow.soak.workload import digest, soak

T = TypeVar("T")
_KINDS = {"plain": 80, "flaky": 6, "delayed": 4, "parent": 3, "signals": 3, "unique": 2, "failing": 1.5, "poison": 0.2}
MAY_FAIL = frozenset({"failing", "poison"})
_TEXTS = ("tide", "조수와 달", "月の満ち欠け", "naïve ☂️", "")
_CHUNK = 50
DELAY = 2.0


def job_of(seed: int, number: int, pace: float) -> dict[str, Any]:
    """Return the payload of a task."""
    chance = random.Random(seed * 1_000_003 + number)
    kind = chance.choices(list(_KINDS), list(_KINDS.values()))[0]
    return {
        "number": number,
        "kind": kind,
        "in": chance.choice(("fetch", "encode", "store")),
        "for": round(chance.random() ** 3 * pace, 4),  # most are short, some take long enough to be hit by a kill
        "text": chance.choice(_TEXTS) * chance.randrange(4),
        "big": chance.randrange(-(2**63), 2**63),
    }


class Feeder:
    """Adds the tasks in a thread, with a bound for how many are open at once."""

    def __init__(self, queue: Queue, recorder: Recorder, *, seed: int, tasks: int, pace: float, most_open: int) -> None:
        self._queue = queue
        self._recorder = recorder
        self._seed, self._tasks, self._pace, self._most_open = seed, tasks, pace, most_open
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="soak-feeder", daemon=True)
        self.ended = 0  # tasks, as the driver last read it
        self.error: BaseException | None = None
        self.kinds: dict[str, str] = {}  # by task id, in the order in which they were added
        self.done = threading.Event()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(60)

    def _run(self) -> None:
        try:
            for first in range(0, self._tasks, _CHUNK):
                while first - self.ended > self._most_open and not self._stopping.wait(0.05):
                    pass
                if self._stopping.is_set():
                    return
                self._add(range(first, min(first + _CHUNK, self._tasks)))
        except BaseException as error:
            self.error = error
        finally:
            self.done.set()

    def _add(self, numbers: range) -> None:
        jobs = {f"soak-{self._seed}-{number:06}": job_of(self._seed, number, self._pace) for number in numbers}
        additions = [
            Addition(
                job, task_id, limit_key=f"key {job['number'] % 40}",
                delay=DELAY if job["kind"] == "delayed" else None,
                unique=f"unique {job['number'] % 7}" if job["kind"] == "unique" else None,
            )
            for task_id, job in jobs.items()
        ]  # fmt: skip
        began = time.monotonic()
        added = self._surely(lambda: self._queue.add_many(soak, additions))
        for addition, task in zip(additions, added, strict=True):
            if task.task_id != addition.task_id:
                continue  # an open task has the unique key
            task_id, job = task.task_id, addition.payload
            self._recorder.write(
                "add", task=task_id, phase="fetch", key=addition.limit_key, name=addition.unique or "",
                hash=digest(job), outcome="may fail" if job["kind"] in MAY_FAIL else "",
                until=began + DELAY if addition.delay else 0.0,
            )  # fmt: skip
            self.kinds[task_id] = job["kind"]
            if job["kind"] == "signals":
                for number in (1, 2):
                    self._signal(task_id, f"{task_id} {number}")

    def _signal(self, task_id: str, name: str) -> None:
        self._recorder.write("operation", task=task_id, name="signal", hash=name)
        try:
            self._surely(lambda: self._queue.signal(task_id, "go", name, signal_id=name))
        except IllegalMove:
            pass  # it was cancelled

    def _surely(self, function: Callable[[], T]) -> T:
        """Repeat a call until the store answers; each one has an id, so that a repetition changes nothing."""
        while True:
            try:
                return function()
            except StoreError:
                if self._stopping.wait(0.2):
                    raise
