"""Race real processes against each other: they start each step together at a barrier, without a lock.

The processes are started once and run many races. This file imports no test tools, so that they start quickly.
"""

import multiprocessing
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

from msgspec.structs import replace

from onerow.core import rules
from onerow.core.errors import IllegalMove
from onerow.core.filters import Filter
from onerow.core.plan import Plan
from onerow.core.status import OPEN, PROCESSING
from onerow.core.task import Task
from onerow.ports import Claim, Held, Inserted, Lease, Move, PhaseClaim, Store, Swapped
from tests.conformance.stores import ENTRIES

PATIENCE = 900.0
MINUTE = timedelta(minutes=1)
FINISHED = 1_000_000  # a finished process is ahead of every barrier, so the others don't wait for it

Go = Callable[[], None]


class Track:
    """A pool of processes that run races."""

    def __init__(self, count: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._steps = spawn.RawArray(
            "l", count
        )  # how often each process has reached the barrier; each writes only its own item
        self._lines: list[Connection] = []
        self._processes = []
        for index in range(count):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=_run, args=(theirs, self._steps, index), daemon=True)
            process.start()
            theirs.close()
            self._lines.append(ours)
            self._processes.append(process)

    def race(self, entry: str, address: str, *operations: tuple[Callable[..., Any], tuple[Any, ...]]) -> list[Any]:
        """Run each operation in its own process and return the results; the processes wait for each other at `go()`."""
        lines = self._lines[: len(operations)]
        assert len(lines) == len(operations), "too few processes for this race"
        for index in range(len(self._steps)):
            self._steps[index] = 0
        for line, (operation, given) in zip(lines, operations, strict=True):
            line.send((len(operations), operation, entry, address, given))
        return [_receive(line) for line in lines]

    def close(self) -> None:
        for line in self._lines:
            line.close()
        for process in self._processes:
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()
            process.close()


def _receive(line: Connection) -> Any:
    if not line.poll(PATIENCE * 1.5):
        raise TimeoutError("a racer neither finished nor failed")
    succeeded, value = line.recv()
    if not succeeded:
        raise AssertionError(value)
    return value


def _run(line: Connection, steps: Any, index: int) -> None:
    while True:
        try:
            count, operation, entry, address, given = line.recv()
        except EOFError:
            return

        def go(count: int = count) -> None:
            steps[index] += 1
            give_up = time.monotonic() + PATIENCE
            while min(steps[:count]) < steps[index]:
                time.sleep(0)
                if time.monotonic() > give_up:
                    raise TimeoutError("the others never came to the barrier")

        store = ENTRIES[entry].open(address, None)
        try:
            answer = (True, operation(store, go, *given))
        except BaseException:
            answer = (False, traceback.format_exc())
        steps[index] = FINISHED
        store.close()
        line.send(answer)


# ── operations ────────────────────────────────────────────────────────────────────────────────────────────────────


def prepare_and_add(store: Store, go: Go, task: Task) -> bool:
    go()
    store.prepare()
    return isinstance(store.insert([task])[0], Inserted)


def add_each(store: Store, go: Go, tasks: list[Task]) -> list[tuple[bool, str]]:
    """Insert one by one; return whether each was inserted, and the id of the stored task."""
    answers = []
    for task in tasks:
        go()
        (answer,) = store.insert([task])
        answers.append((isinstance(answer, Inserted), answer.task.task_id))
    return answers


def claim_all(store: Store, go: Go, worker: str, batch: int) -> list[str]:
    """Claim until no task is left; return the ids of the claimed tasks."""
    want = PhaseClaim(pipeline="videos", phase="script", limit=batch, lease_for=MINUTE)
    ours: list[str] = []
    go()
    while tasks := store.claim(Claim(worker, [want])):
        ours += [task.task_id for task in tasks]
    return ours


def work_within(store: Store, go: Go, worker: str, want: PhaseClaim) -> list[tuple[str, str, float, float]]:
    """Claim and complete within a limit until all tasks have ended.

    Return each claimed task with its key, and the times of the machine's clock between which its slot was surely held:
    a search can't tell, because MongoDB may show a task that ended during the search beside the one that followed it.
    """
    held = []
    give_up = time.monotonic() + PATIENCE
    go()
    while time.monotonic() < give_up:
        tasks = store.claim(Claim(worker, [want]))
        claimed_at = time.monotonic()
        if tasks:
            time.sleep(0.001)  # so that another process may break the limit
            moves = [Move(task, rules.finish(task, None, store.now(), by=worker)) for task in tasks]
            held += [(task.task_id, task.limit_key, claimed_at, time.monotonic()) for task in tasks]
            store.swap(moves)
        # Ordered by creation time, which never changes: a count by status may miss a task that changes during the count.
        elif not store.find(Filter(statuses=OPEN), limit=1, order="oldest").tasks:
            break
    return held


def finish_each(store: Store, go: Go, held: list[Task]) -> list[str]:
    """Complete each task; after Stale, read it and retry while the lease is held. Return the final status of each."""
    ends = []
    for task in held:
        go()
        while True:
            (answer,) = store.swap([Move(task, rules.finish(task, '"done"', store.now(), by="holder"))])
            if isinstance(answer, Swapped):
                ends.append(str(answer.task.status))
                break
            (found,) = store.fetch([task.task_id])
            if found.status is not PROCESSING or found.token != task.token:
                ends.append("lost")
                break
            task = found
    return ends


def cancel_each(store: Store, go: Go, ids: list[str]) -> list[bool]:
    """Cancel each task by read, decide and compare-and-swap, with retries. Return whether each was cancelled."""
    granted = []
    for task_id in ids:
        go()
        while True:
            (found,) = store.fetch([task_id])
            try:
                cancelled = rules.cancel(found, store.now(), by="ann")
            except IllegalMove:
                granted.append(False)
                break
            if isinstance(store.swap([Move(found, cancelled)])[0], Swapped):
                granted.append(True)
                break
    return granted


def beat_each(store: Store, go: Go, held: list[Task]) -> list[bool]:
    extended = []
    for task in held:
        go()
        extended.append(isinstance(store.extend([Lease(task.task_id, task.token)], MINUTE)[0], Held))
    return extended


def rescue_each(store: Store, go: Go, ids: list[str]) -> list[bool]:
    """Try to rescue each task whose lease has expired. Return whether each was rescued."""
    rescued = []
    for task_id in ids:
        go()
        (found,) = store.fetch([task_id])
        if found.status is not PROCESSING:
            rescued.append(False)
            continue
        move = Move(found, rules.rescue(found, store.now(), by="rescuer"), if_dead=True)
        rescued.append(isinstance(store.swap([move])[0], Swapped))
    return rescued


def advance_each_twice(store: Store, go: Go, held: list[Task], plan: Plan) -> list[str]:
    """Advance each task, ignore the answer as if it were lost, repeat the same write, and read the row."""
    go()
    ends = []
    for task in held:
        move = Move(task, rules.complete(task, plan, '"v.mp4"', store.now(), by="holder"))
        store.swap([move])
        if isinstance(store.swap([move])[0], Swapped):
            ends.append("advanced twice")
            continue
        (found,) = store.fetch([task.task_id])
        if found.status is PROCESSING and found.token == task.token:
            ends.append("not written")
        else:
            ends.append("landed" if found.token == task.token else "another's")
    return ends


def count_up(store: Store, go: Go, times: int) -> None:
    """Increment a note `times` times by compare-and-swap."""
    go()
    for _ in range(times):
        while True:
            (note,) = store.notes("counter")
            if store.write_notes([replace(note, body=note.body + 1)])[0]:
                break


def live_until_killed(line: Connection, entry: str, address: str, tasks: list[Task], plan: Plan) -> None:
    """Add, claim, advance and complete tasks; send each operation after it was acknowledged."""
    store = ENTRIES[entry].open(address, None)
    wants = [PhaseClaim(pipeline="videos", phase=phase, limit=1, lease_for=MINUTE) for phase in ("video", "youtube")]
    for task in tasks:
        store.insert([task])
        line.send(("added", task.task_id))
        for held in store.claim(Claim("doomed", wants)):
            (answer,) = store.swap([Move(held, rules.complete(held, plan, '"made"', store.now()))])
            if isinstance(answer, Swapped):
                line.send((str(answer.task.status), held.task_id))
